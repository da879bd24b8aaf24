// Errors that a caller can act on: one class for each reaction of a caller.

/** Base of all errors of this package. */
export class FoltrError extends Error {
  override name = "FoltrError";
}

/** A peer's message is invalid or not trusted; `code` is the receipt code that says why. */
export class MessageError extends FoltrError {
  override name = "MessageError";

  constructor(
    readonly code: string,
    detail: string,
  ) {
    super(`${code}: ${detail}`);
  }
}

/** The application's data cannot be used, or the device's store cannot keep it. */
export class DataError extends FoltrError {
  override name = "DataError";
}

/** The configuration is inconsistent. */
export class SettingsError extends FoltrError {
  override name = "SettingsError";
}

/** The broker or the federator cannot be reached now. */
export class UnavailableError extends FoltrError {
  override name = "UnavailableError";
}
