// An agent that books tables: it asks a human before it books, and the user's page for a color. Nothing in it knows of the bridge.

import { FunctionTool, LlmAgent, LongRunningFunctionTool } from '@google/adk';
import { z } from 'zod';

const bookTable = new FunctionTool({
  name: 'book_table',
  description: 'Books a table for today.',
  parameters: z.object({ restaurant: z.string(), guests: z.number() }),
  requireConfirmation: true,
  execute: ({ restaurant, guests }) => ({ booked: restaurant, guests }),
});

// It returns nothing: the page runs it, and answers.
const pickColor = new LongRunningFunctionTool({
  name: 'pick_color',
  description: 'Lets the user pick a color.',
  parameters: z.object({ question: z.string().optional() }),
  execute: () => undefined,
});

export const rootAgent = new LlmAgent({
  name: 'assistant',
  model: process.env.MODEL ?? 'gemini-flash-latest',
  instruction: 'You book tables, and ask for colors. Use your tools.',
  tools: [bookTable, pickColor],
});
