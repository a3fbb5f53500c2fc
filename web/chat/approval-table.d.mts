// What a row of the table of approvals is.

export interface Approval {
  name: string;
  say: string;
  rounds: Record<string, boolean | { approved: boolean; reason?: string }>[];
  states: Record<string, string>;
  text: RegExp;
}

export const APPROVALS: readonly Approval[];
