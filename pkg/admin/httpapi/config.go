package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
)

type refreshInput struct {
	Target
	Body struct {
		AcceptRemovals []string `json:"accept_removals,omitempty" maxItems:"10000" doc:"Groups, as tenant/group, that the config may remove"`
	}
}

func (a *API) config() {
	huma.Register(a.huma, a.operation(operation{
		id: "shard-list", method: http.MethodGet, path: "/shards", summary: "Which server leads each shard, and until when",
		answers: types{200: []admin.ShardStatus{}, 207: Partial[admin.ShardStatus]{}},
	}), func(ctx context.Context, in *Target) (*reply, error) {
		shards, err := in.read(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		all, err := a.cfg.Service.ShardStatus(ctx, shards)
		return gathered(shards, all, err, false)
	})
	huma.Register(a.huma, a.operation(operation{
		id: "config-status", method: http.MethodGet, path: "/config/status", summary: "Which config each shard runs",
		answers: types{200: []admin.ConfigStatus{}, 207: Partial[admin.ConfigStatus]{}},
	}), func(ctx context.Context, in *Target) (*reply, error) {
		shards, err := in.read(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		all, err := a.cfg.Service.ConfigStatus(ctx, shards)
		return gathered(shards, all, err, false)
	})
	huma.Register(a.huma, a.operation(operation{
		id: "config-refresh", method: http.MethodPost, path: "/config/refresh", summary: "Read the config again", body: true,
		description: "A config that is invalid changes nothing: 400 with every violation. One that removes groups with instances, or sets " +
			"their size to 0, changes nothing either until accept_removals names all of them: 409 with these groups.",
		answers: types{200: []admin.Refresh{}, 207: Partial[admin.Refresh]{}, 304: nil},
	}), a.refresh)
	a.diffs()
}

func (a *API) refresh(ctx context.Context, in *refreshInput) (*reply, error) {
	shards, err := in.write(a.cfg.Shards)
	if err != nil {
		return nil, err
	}
	accept := in.Body.AcceptRemovals
	if len(shards) > 1 && len(accept) > 0 {
		return nil, invalidField("accept_removals", fmt.Sprintf("%.80q is a group of one shard: add shard=NAME", accept[0]))
	}
	for _, name := range accept {
		if _, err := fleet.ParseGroupKey(name); err != nil {
			return nil, invalidField("accept_removals", err.Error())
		}
	}
	all, err := a.cfg.Service.RefreshConfig(ctx, shards, accept, nil)
	return refreshed(shards, all, err)
}

// refreshed is the answer to a refresh: a shard whose outcome is that its config is not used
// has failed.
func refreshed(shards []client.Shard, all []admin.Refresh, err error) (*reply, error) {
	var failed []Failure
	for _, f := range failures(err, false) {
		if !f.outcome {
			failed = append(failed, f)
		}
	}
	unchanged := true
	for _, r := range all {
		unchanged = unchanged && r.Outcome == admin.RefreshUnchanged
		switch r.Outcome {
		case admin.RefreshInvalid:
			detail := fmt.Sprintf("shard %s: %v", r.Shard, admin.ErrInvalidConfig)
			for _, v := range r.Violations {
				detail += "; " + v.Field + ": " + v.Description
			}
			failed = append(failed, Failure{Shard: r.Shard, Status: http.StatusBadRequest, Detail: detail, Fields: r.Violations})
		case admin.RefreshAwaits:
			detail := fmt.Sprintf("shard %s: %v", r.Shard, admin.ErrAwaitsConfirmation)
			for _, removal := range r.Removals {
				detail += fmt.Sprintf("; group %s: %s", removal.Group, removal.Description)
			}
			failed = append(failed, Failure{Shard: r.Shard, Status: http.StatusConflict, Detail: detail, Removals: r.Removals})
		}
	}
	switch {
	case len(failed) >= len(shards):
		return nil, problemOf(failed)
	case len(failed) > 0:
		return &reply{Status: http.StatusMultiStatus, Body: Partial[admin.Refresh]{Answers: all, Failed: failed}}, nil
	case unchanged:
		return &reply{Status: http.StatusNotModified}, nil
	default:
		return &reply{Status: http.StatusOK, Body: all}, nil
	}
}

// isOutcome reports whether an error repeats the outcome of a refresh.
func isOutcome(err error) bool {
	return errors.Is(err, admin.ErrInvalidConfig) || errors.Is(err, admin.ErrAwaitsConfirmation)
}
