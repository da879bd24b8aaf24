"""The version of this software, in a module that imports nothing; devices and federators exchange it."""

__version__ = "0.1.0"
