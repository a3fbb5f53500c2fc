'use client';

// Opens the chat that the address names, with what the bridge has stored of it.

import { useEffect, useState } from 'react';

import { Chat } from './chat';

export default function Page() {
  const [chat, setChat] = useState();
  useEffect(() => {
    // A new chat gets an id of its own; the address keeps it, so that a reload finds the chat again.
    const id = location.hash.slice(1) || crypto.randomUUID();
    location.hash = id;
    const load = async () => {
      const stored = await fetch(`/api/chats/${id}`);
      setChat({ id, stored: stored.ok ? (await stored.json()).messages : [] });
    };
    load();
  }, []);
  return chat && <Chat {...chat} />;
}
