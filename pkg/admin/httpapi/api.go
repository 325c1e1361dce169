// Package httpapi serves package admin over HTTP: what nstance-admin does with shards, with
// the same JSON, and an OpenAPI document that is made from the types.
//
// A request passes the guard (Host, token, Origin, Content-Type, size), then huma, which
// checks it against the document, and then makes the same calls as the command of its name.
// Errors are problems as of RFC 9457, whose sentences are those of the command line. If only
// some shards answer, the status is 207, and the answer names the others.
package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/client"
)

// Config configures an API.
type Config struct {
	Service Service
	Shards  []client.Shard
	Version string
	Hosts   []string // names and addresses by which the API may be called, besides those of loopback
	Access  Access
	// Timeout limits each request, other than /events.
	Timeout time.Duration
	Boot    string // distinguishes the ids of this process's events from others'
	Now     func() time.Time
	Logger  *slog.Logger
}

// API serves requests. It is safe for concurrent use.
type API struct {
	cfg  Config
	mux  *http.ServeMux
	huma huma.API
	hub  *hub
	// audit has changes and refusals.
	audit *audit.Log
	// public are the paths that need no token: what they have says nothing of the cluster.
	public map[string]bool
}

// New makes an API. Close ends its streams.
func New(cfg Config) (*API, error) {
	book, err := audit.New(audit.Config{Logger: cfg.Logger, Now: cfg.Now})
	if err != nil {
		return nil, err
	}
	a := &API{cfg: cfg, mux: http.NewServeMux(), hub: newHub(cfg), audit: book, public: map[string]bool{"/health": true}}
	a.huma = humago.New(a.mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "nstance-admin", Version: cfg.Version,
				Description: "Groups and instances of the shards of an Nstance cluster. " +
					"An error is a problem as of RFC 9457; 207 means that only some of the shards answered.",
			},
			Components: &huma.Components{
				Schemas: newRegistry(),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "Required if the API was started with --token-file or --read-only-token-file"},
				},
			},
			Security: []map[string][]string{{"token": {}}, {}},
		},
		Formats:                      map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{refusals},
	})
	a.huma.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { next(mapped{ctx}) })
	a.health()
	a.status()
	a.config()
	a.groups()
	a.instances()
	a.events()
	if err := a.documents(); err != nil {
		return nil, err
	}
	if err := a.dashboard(); err != nil {
		return nil, err
	}
	a.mux.HandleFunc("/", a.unknown)
	return a, nil
}

// Close ends all streams of events, and refuses new ones.
func (a *API) Close() { a.hub.close() }

// Document returns the OpenAPI document.
func (a *API) Document() *huma.OpenAPI { return a.huma.OpenAPI() }

// request is an embedded huma.Context, which has a method of that name.
type request = huma.Context

// mapped answers 400 where huma answers 422, as refusals does in the body.
type mapped struct{ request }

// SetStatus implements huma.Context.
func (m mapped) SetStatus(code int) { m.request.SetStatus(invalidAs400(code)) }

// Unwrap is used by package humago.
func (m mapped) Unwrap() huma.Context { return m.request }

func (a *API) health() {
	type health struct {
		Status string `json:"status" enum:"ok" doc:"This process answers; it says nothing of the shards"`
	}
	op := a.operation(operation{
		id: "health", method: http.MethodGet, path: "/health", open: true, summary: "Whether this API answers", answers: types{200: health{}},
	})
	huma.Register(a.huma, op, func(context.Context, *struct{}) (*reply, error) {
		return &reply{Status: http.StatusOK, Body: health{"ok"}}, nil
	})
}

// documents serves the OpenAPI document, and a page that shows it.
func (a *API) documents() error {
	for _, unused := range []string{"ErrorModel", "ErrorDetail"} { // huma's own errors, which refusals replaces
		delete(a.Document().Components.Schemas.Map(), unused)
	}
	asJSON, err := json.MarshalIndent(a.Document(), "", "  ")
	if err != nil {
		return fmt.Errorf("make the OpenAPI document: %w", err)
	}
	asYAML, err := a.Document().YAML()
	if err != nil {
		return fmt.Errorf("make the OpenAPI document: %w", err)
	}
	page, err := docsPage(a.Document())
	if err != nil {
		return fmt.Errorf("make the page of the API: %w", err)
	}
	a.static("/openapi.json", "application/openapi+json", asJSON)
	a.static("/openapi.yaml", "application/openapi+yaml", asYAML)
	a.static("/docs", "text/html; charset=utf-8", page)
	a.static("/docs.css", "text/css; charset=utf-8", docsStyle)
	return nil
}

func (a *API) static(path, contentType string, body []byte) {
	a.public[path] = true
	a.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body) // fails if the client is gone
	})
}

// unknown answers requests without an operation.
func (a *API) unknown(w http.ResponseWriter, r *http.Request) {
	unread(w, r)
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := a.mux.Handler(other); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		problem(http.StatusNotFound, fmt.Sprintf("there is no %.200q: /docs lists what there is", r.URL.Path)).write(w)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem(http.StatusMethodNotAllowed, fmt.Sprintf("method %.20q is not valid for %.200q: want %s", r.Method, r.URL.Path,
		strings.Join(allowed, " or "))).write(w)
}
