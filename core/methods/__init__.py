"""The learning methods, one module each: what a device does, and what the federator does.

`foltr.core.methods.registry` makes the parts of a method from its announced settings. The device SDK and the simulator
use the same parts.
"""
