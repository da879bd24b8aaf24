// The public API of the package; all else is internal.

export { EdgeClient, type EdgeClientOptions, type RankOptions } from "./client.js";
export type { AuditLogCut, DeviceState, ForgetResult, ForgetState } from "./device_state.js";
export { DataError, FoltrError, MessageError, SettingsError, UnavailableError } from "./errors.js";
export { deviceKey, type DeviceKey } from "./keys.js";
export type { Exploration } from "./learning/display.js";
export type { FadingMean, Gate, ShownCount, Source } from "./learning/gate.js";
export type { Features } from "./learning/linear.js";
export type { Level, Log } from "./log.js";
export type { Interval, ListOrder, Report } from "./report.js";
export type { FeaturesLike, Serp } from "./serps.js";
export type { UnlearningLimits } from "./training/unlearning_limits.js";
