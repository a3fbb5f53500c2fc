// Checks that the bridge's idea of when a stock front end sends automatically is the AI SDK's own.
//
// One case per line: {messages: UIMessage[], toolCalls: boolean, approvalResponses: boolean}, the booleans being what
// the bridge thinks that the two stock helpers answer.

import * as ai6 from 'ai-6';
import * as ai7 from 'ai-7';

import { readCorpus, testEach } from './corpus.mjs';

const PACKAGES = { 'ai 6': ai6, 'ai 7': ai7 };

const HELPERS = {
  toolCalls: 'lastAssistantMessageIsCompleteWithToolCalls',
  approvalResponses: 'lastAssistantMessageIsCompleteWithApprovalResponses',
};

await testEach(readCorpus('predicates.jsonl'), (testCase) => {
  const problems = [];
  for (const [label, ai] of Object.entries(PACKAGES)) {
    for (const [field, helper] of Object.entries(HELPERS)) {
      const actual = ai[helper]({ messages: structuredClone(testCase.messages) });
      if (actual === testCase[field]) continue;
      const said = JSON.stringify(testCase[field]);
      problems.push(`${label}: ${helper} is ${actual}, \`${field}\` says ${said}`);
    }
  }
  if (problems.length > 0) problems.push(`messages: ${JSON.stringify(testCase.messages)}`);
  return problems;
});
