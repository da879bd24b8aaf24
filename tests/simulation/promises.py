"""How a simulation fails: something that is promised was not so."""


class BrokenPromiseError(AssertionError):
    """``promise`` says in a few words what should have been true."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise
