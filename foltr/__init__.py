"""The shared kernel of foltr: messages, rankers, learners, click models, data, metrics, aggregation.

Nothing here does I/O but the readers of data files; nothing here knows asyncio.
"""

__version__ = "0.1.0"
