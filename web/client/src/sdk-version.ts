/** The versions of the AI SDK that a front end may run, and what the bridge can tell each of them. */

/** The major version of the package `ai`. */
export type SdkVersion = 6 | 7;

/** What a front end runs that does not say. */
export const DEFAULT_SDK: SdkVersion = 6;

/** Whether a chat can receive the answer to a question: `tool-approval-response`. */
export function readsApprovalResponses(sdk: SdkVersion): boolean {
  return sdk >= 7;
}

/** Whether a chat knows that a step can be begun again: `reset-step`. */
export function takesStepsBack(sdk: SdkVersion): boolean {
  return sdk >= 7;
}
