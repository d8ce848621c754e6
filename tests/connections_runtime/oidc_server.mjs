// An authorization server that is strict where it may be: oidc-provider over HTTPS on a free port.
// Arguments: a PEM file with the server's key and certificate, the folder where oidc-provider is installed, and the redirect addresses of the client `web`. It
// prints one line of JSON, its address, when it serves. It answers each line of its standard input with how many refreshes it has carried out or refused, and ends
// with that input.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { createInterface } from 'node:readline';

const [, , file, installed, ...ofWeb] = process.argv;
const { Provider } = await import(`${installed}/node_modules/oidc-provider/lib/index.js`);
const pem = readFileSync(file);
const server = createServer({ key: pem, cert: pem });
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const issuer = `https://localhost:${server.address().port}`;

// A secret that tells a form-encoded Basic header from a raw one.
const secret = 'a+b/c==: %~';
const redirects = ['http://127.0.0.1/callback', 'https://app.example/callback'];
const client = (id, method, more = {}) => ({
  client_id: id,
  client_secret: method === 'none' ? undefined : secret,
  token_endpoint_auth_method: method,
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  redirect_uris: redirects,
  application_type: 'native',
  ...more,
});

const provider = new Provider(issuer, {
  clients: [
    client('by-basic', 'client_secret_basic'),
    client('by-post', 'client_secret_post'),
    client('public', 'none'),
    // Its person has to say yes or no in a browser.
    client('asking', 'client_secret_basic'),
    ...(ofWeb.length ? [client('web', 'client_secret_basic', { application_type: 'web', redirect_uris: ofWeb })] : []),
  ],
  clientBasedCORS: () => false,
  cookies: { keys: ['only for tests'] },
  features: { devInteractions: { enabled: false }, revocation: { enabled: true } },
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  issueRefreshToken: async () => true,
  pkce: { required: () => true },
  rotateRefreshToken: true,
  scopes: ['openid', 'offline_access', 'read', 'write'],
  ttl: { AccessToken: 60, AuthorizationCode: 60, Grant: 3600, RefreshToken: 3600, Session: 3600, Interaction: 600, IdToken: 60 },
});

const page = (response, prompt) => {
  const buttons = prompt === 'login' ? '<button>Log in</button>' : '<button>Allow</button><button formaction="?no">Refuse</button>';
  response.setHeader('Content-Type', 'text/html');
  response.end(`<!doctype html><title>${prompt}</title><form method="post">${buttons}</form>`);
};

let refreshes = 0;
provider.use(async (context, next) => {
  await next();
  if (context.oidc?.params?.grant_type === 'refresh_token') refreshes += 1;
});
const answer = provider.callback();
server.on('request', async (request, response) => {
  if (!request.url.startsWith('/interaction/')) return answer(request, response);
  // A person who says yes to everything.
  const { prompt, params, grantId, session } = await provider.interactionDetails(request, response);
  if (params.client_id === 'asking') {
    if (request.method !== 'POST') return page(response, prompt.name);
    if (request.url.endsWith('?no')) return provider.interactionFinished(request, response, { error: 'access_denied', error_description: '<b>no</b>' });
  }
  if (prompt.name === 'login') {
    return provider.interactionFinished(request, response, { login: { accountId: 'person' } });
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  return provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
});

console.log(JSON.stringify({ issuer, secret }));
createInterface({ input: process.stdin })
  .on('line', () => console.log(refreshes))
  .on('close', () => process.exit(0));
