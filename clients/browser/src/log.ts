// Log lines for the developer of the page: one for each problem or notable event, none for normal operation.

export type Level = "debug" | "info" | "warning" | "error";

/** Takes an event, named like those of the Python device, and its details. */
export type Log = (level: Level, event: string, details?: Record<string, unknown>) => void;

/** Log notable events to the console. */
export const toConsole: Log = (level, event, details = {}) => {
  if (level === "error") console.error(`foltr: ${event}`, details);
  else if (level === "warning") console.warn(`foltr: ${event}`, details);
};

export function causeOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
