// The public API of the package; all else is internal.

export { EdgeClient, type EdgeClientOptions, type RankOptions } from "./client.js";
export type { DeviceState } from "./agent.js";
export type { AuditLogCut } from "./audit_watch.js";
export { DataError, FoltrError, MessageError, SettingsError, UnavailableError } from "./errors.js";
export type { ForgetResult } from "./forgetting.js";
export { deviceKey, type DeviceKey } from "./keys.js";
export type { Exploration } from "./learning/display.js";
export type { FadingMean, Gate, ShownCount, Source } from "./learning/gate.js";
export type { Features } from "./learning/linear.js";
export type { Level, Log } from "./log.js";
export type { Interval, ListOrder, Report } from "./report.js";
export type { FeaturesLike, Serp } from "./serps.js";
export type { ForgetState } from "./store/store.js";
export type { UnlearningLimits } from "./training/relearning.js";
