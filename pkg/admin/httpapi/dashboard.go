package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nstance/nstance/pkg/admin/dashboard"
)

// dashboard serves the page that shows the shards. Its files need no token: they say nothing of the
// cluster, and the page itself calls the operations.
func (a *API) dashboard() error {
	files, err := dashboard.Files()
	if err != nil {
		return fmt.Errorf("read the dashboard: %w", err)
	}
	for _, f := range files {
		a.public[f.Path] = true
		path := f.Path
		if path == "/" {
			path = "/{$}" // not what is below it
		}
		a.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", dashboard.ContentSecurityPolicy)
			w.Header().Set("Content-Type", f.ContentType)
			_, _ = w.Write(f.Body) // fails if the client is gone
		})
	}
	return nil
}

type statusInput struct {
	Authorization string `header:"Authorization" hidden:"true"`
}

// apiStatus is what a page has to know before it shows anything.
type apiStatus struct {
	Version   string   `json:"version" doc:"Of nstance-admin"`
	Shards    []string `json:"shards" doc:"The shards that this API calls"`
	MayChange bool     `json:"may_change" doc:"Whether the token may change something; without token files, true"`
}

func (a *API) status() {
	huma.Register(a.huma, a.operation(operation{
		id: "status", method: http.MethodGet, path: "/status", local: true, summary: "Which shards there are, and what the token may do",
		description: "It says nothing of the state of the shards.", answers: types{200: apiStatus{}},
	}), func(_ context.Context, in *statusInput) (*reply, error) {
		_, changes, err := a.cfg.Access.of(in.Authorization, a.cfg.Logger)
		if err != nil {
			return nil, problem(http.StatusUnauthorized, err.Error()) // the file of tokens has changed meanwhile
		}
		s := apiStatus{Version: a.cfg.Version, Shards: []string{}, MayChange: changes}
		for _, shard := range a.cfg.Shards {
			s.Shards = append(s.Shards, shard.ID)
		}
		return &reply{Status: http.StatusOK, Body: s}, nil
	})
}
