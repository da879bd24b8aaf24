// How much unlearning jobs may ask of a device.

/** Limits on unlearning steps, since each answer reveals something of the user's clicks. */
export interface UnlearningLimits {
  /** Steps answered per day by the device's clock (UTC); 0 answers none. */
  readonly stepsADay: number;
  /** Steps in which a kept interaction may be used in total. */
  readonly stepsAClick: number;
  /** A step is not answered if it asks for fewer interactions, or if fewer remain. */
  readonly fewestInteractions: number;
}

export const USUAL_LIMITS: UnlearningLimits = { stepsADay: 200, stepsAClick: 50, fewestInteractions: 3 };
