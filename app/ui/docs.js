// Swagger UI over this server's own document. The token set in the dashboard is not handed on: what is
// tried here is authorised here.

window.SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#swagger-ui',
  deepLinking: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  validatorUrl: null,
  presets: [window.SwaggerUIBundle.presets.apis],
});
