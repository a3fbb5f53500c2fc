import { createRoot } from 'react-dom/client';
import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport } from 'ai';
function X(){ const c = useChat({transport: new DefaultChatTransport({api:'api/chat'})}); return JSON.stringify(c.messages); }
createRoot(document.getElementById('root')!).render(<X/>);
