// What a device has to say to whoever runs the page: one line for what is worth a look, none for what goes well.

export type Level = "debug" | "info" | "warning" | "error";

/** Takes an event, named like those of the Python device, with what belongs to it. */
export type Log = (level: Level, event: string, details?: Record<string, unknown>) => void;

/** Say what is worth a look on the console. */
export const toConsole: Log = (level, event, details = {}) => {
  if (level === "error") console.error(`foltr: ${event}`, details);
  else if (level === "warning") console.warn(`foltr: ${event}`, details);
};

export function causeOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
