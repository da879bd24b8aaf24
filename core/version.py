"""The version of this software, in a module that imports nothing: a device and a federator tell it to each other."""

__version__ = "0.1.0"
