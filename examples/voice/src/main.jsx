// A conversation by voice: press the button, allow the microphone, and speak.

import { useBridgeChat } from '@adk-bridge/client/react';
import { createRoot } from 'react-dom/client';

const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id;

function VoiceChat() {
  const { messages, voice } = useBridgeChat({ mode: 'live', id, voice: { mode: 'hands-free' } });
  const isOff = voice.state.status === 'off';
  return (
    <main>
      <button type="button" onClick={() => (isOff ? voice.start() : voice.stop())}>
        {isOff ? 'Speak' : 'End'}
      </button>
      <output>{voice.state.error?.message ?? voice.state.status}</output>
      {messages.map((message) => (
        <article key={message.id} className={message.role}>
          {message.parts.map((part, index) => part.type === 'text' && <p key={index}>{part.text}</p>)}
        </article>
      ))}
    </main>
  );
}

createRoot(document.getElementById('root')).render(<VoiceChat />);
