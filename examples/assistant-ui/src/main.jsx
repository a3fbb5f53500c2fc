// Opens the chat that the address names, with what the bridge has stored of it.

import { createRoot } from 'react-dom/client';

import { Chat } from './chat.jsx';

// A new chat gets an id of its own; the address keeps it, so that a reload finds the chat again.
const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id;

const stored = await fetch(`/api/chats/${id}`);
const { messages } = stored.ok ? await stored.json() : { messages: [] };

createRoot(document.getElementById('root')).render(<Chat id={id} stored={messages} />);
