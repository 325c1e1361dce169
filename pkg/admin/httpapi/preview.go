package httpapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/nstance/nstance/pkg/admin"
)

type diffInput struct {
	Target
	Body struct {
		Text string `json:"text" doc:"The config, JSON with comments; at most 1000000 bytes"`
	}
}

const diffPath = "/config/diff"

// diffs registers the previews of a config.
func (a *API) diffs() {
	answers := types{200: []admin.Preview{}, 207: Partial[admin.Preview]{}}
	huma.Register(a.huma, a.operation(operation{
		id: "config-diff", method: http.MethodGet, path: diffPath, summary: "What a config refresh would do",
		description: "It changes nothing. 400 with every violation if the config in the bucket is invalid.", answers: answers,
	}), func(ctx context.Context, in *Target) (*reply, error) {
		shards, err := in.read(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		all, err := a.cfg.Service.PreviewConfig(ctx, shards, nil)
		return gathered(shards, all, err, false)
	})
	huma.Register(a.huma, a.operation(operation{
		id: "config-diff-text", method: http.MethodPost, path: diffPath, summary: "What a config would do", body: true,
		description: "As if the text were the config in the bucket. It changes nothing; a read-only token may not do it.", answers: answers,
	}), a.diff)
}

func (a *API) diff(ctx context.Context, in *diffInput) (*reply, error) {
	shards, err := in.write(a.cfg.Shards)
	if err != nil {
		return nil, err
	}
	all, err := a.cfg.Service.PreviewConfig(ctx, shards, []byte(in.Body.Text))
	if errors.Is(err, admin.ErrPreviewText) {
		return nil, invalidField("text", err.Error())
	}
	return gathered(shards, all, err, false)
}
