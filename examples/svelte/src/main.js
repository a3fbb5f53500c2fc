// Opens the chat that the address names, with what the bridge has stored of it.

import { mount } from 'svelte';

import ChatView from './chat.svelte';

// A new chat gets an id of its own; the address keeps it, so that a reload finds the chat again.
const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id;

const stored = await fetch(`/api/chats/${id}`);
const { messages } = stored.ok ? await stored.json() : { messages: [] };

mount(ChatView, { target: document.getElementById('root'), props: { id, stored: messages } });
