// Starts Swagger UI on the document of the service that serves this page.
window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: document.body.dataset.document,
    dom_id: "#docs",
    deepLinking: true,
    displayRequestDuration: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    persistAuthorization: false, // a token is forgotten with the page
    tryItOutEnabled: true,
    validatorUrl: null, // the document leaves this machine for no check elsewhere
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
  });
});
