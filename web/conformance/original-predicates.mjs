// When the front end of adk-stream-protocol sends automatically. Its predicates know no steps: all parts of the last
// message count. Written from a description of how they behave.

/** Tools that it runs itself: after an approval it waits for their outputs. */
const CLIENT_TOOLS = ['change_bgm', 'get_location', 'pick_color'];

const toolsOf = (message) => (message?.role === 'assistant' ? message.parts : []).filter(({ type }) => type.startsWith('tool-'));
const hasText = (message) => message?.parts.some(({ type }) => type === 'text') ?? false;

/** Text, answered, pending, error, output, else send: in this order. */
const ordered =
  (isQuestion) =>
  ({ messages }) => {
    const message = messages.at(-1);
    const tools = toolsOf(message);
    const isAsked = (state) => tools.some((tool) => isQuestion(tool) && tool.state === state);
    if (hasText(message) || !isAsked('approval-responded')) return false;
    return !isAsked('approval-requested') && !tools.some(({ state }) => state === 'output-error');
  };

export const PREDICATES = {
  /** Until December 2025: an approval is a call of its own. */
  early: () => ordered(({ type }) => type === 'tool-adk_request_confirmation'),
  /** The same checks, with the approval on the call. */
  first: () => ordered(() => true),
  /** The later one ignores text while a question is open or answered, waits for its own tools, and sends nothing twice. */
  later: () => {
    const sent = new Set();
    return ({ messages }) => {
      const message = messages.at(-1);
      const tools = toolsOf(message);
      if (tools.length === 0) return false;
      const has = (state) => tools.some((tool) => tool.state === state);
      const isActive = has('approval-requested') || has('approval-responded');
      const hasOutput = has('output-available');
      if (hasText(message) && (hasOutput || !isActive)) return false;
      if (!isActive) return hasOutput;
      const answered = tools.filter(({ state }) => state === 'approval-responded');
      if (answered.length === 0 || has('approval-requested')) return false;
      const isOwn = ({ type }) => CLIENT_TOOLS.includes(type.slice('tool-'.length));
      if (answered.some((tool) => tool.approval?.approved === true && isOwn(tool))) return false;
      const key = `${message.id}:${answered
        .map(({ toolCallId }) => toolCallId)
        .sort()
        .join()}`;
      if ((!hasOutput && sent.has(key)) || has('output-error')) return false;
      sent.add(key);
      return true;
    };
  },
};
