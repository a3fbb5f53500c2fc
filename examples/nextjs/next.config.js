// Passes on to the bridge what is the bridge's. Answers stream through `next dev` and `next start`.

const bridge = process.env.ADK_BRIDGE_URL ?? 'http://127.0.0.1:8080';

export default {
  rewrites: async () => [{ source: '/api/:path*', destination: `${bridge}/api/:path*` }],
};
