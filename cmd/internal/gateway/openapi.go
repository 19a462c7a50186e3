package gateway

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var openAPI []byte

// OpenAPI is the published document of the API.
func OpenAPI() []byte { return openAPI }

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=300")
	_, _ = w.Write(openAPI)
}
