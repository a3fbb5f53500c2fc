/** Tools that a page declares in its requests: the model may call them, and the page runs them. */

/** What the model learns about a tool of the page. */
export interface DeclaredTool {
  /** Letters, digits, `_`, `-` and `.`, at most 64, beginning with a letter or `_`; no name of the agent's own tools. */
  name: string;
  description?: string;
  /** The JSON schema of its input, which is an object. */
  inputSchema?: object;
  /** Whether the user is asked before each call. */
  approval?: boolean;
}

/** The tools of a page, or a function that is asked each time. */
export type DeclaredTools = readonly DeclaredTool[] | (() => readonly DeclaredTool[]);

/** What a request says about the tools of its page: nothing where none were ever given. */
export function toolsField(tools: DeclaredTools | undefined): { tools?: readonly DeclaredTool[] } {
  const declared = typeof tools === 'function' ? tools() : tools;
  return declared === undefined ? {} : { tools: declared };
}
