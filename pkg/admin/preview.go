package admin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// MaxPreviewText is the largest text of a preview, in bytes. Shards refuse larger ones.
const MaxPreviewText = 1_000_000

// ErrPreviewText means that a text is too large for a preview.
var ErrPreviewText = errors.New("too large for a preview")

// Preview is what a config would do to one shard.
type Preview struct {
	Shard string
	*nstancev1.PreviewConfigResponse
}

// MarshalJSON implements json.Marshaler: the message's JSON with the shard.
func (p Preview) MarshalJSON() ([]byte, error) {
	return jsonOf(inShard{p.Shard}, p.PreviewConfigResponse)
}

// Effect is what a config did to a shard, as a preview shows it.
type Effect struct{ *nstancev1.ConfigPreview }

// MarshalJSON implements json.Marshaler: the message's JSON.
func (e Effect) MarshalJSON() ([]byte, error) { return jsonOf(e.ConfigPreview) }

// UnmarshalJSON is the inverse of MarshalJSON.
func (e *Effect) UnmarshalJSON(text []byte) error {
	e.ConfigPreview = &nstancev1.ConfigPreview{}
	if err := protojson.Unmarshal(text, e.ConfigPreview); err != nil {
		return fmt.Errorf("parse a preview: %w", err)
	}
	return nil
}

// PreviewConfig returns what a config would do to every shard given: a text, or the config in the
// bucket if it is nil. It changes nothing. The error of a shard for which the config is invalid
// has its violations.
func (c *Client) PreviewConfig(ctx context.Context, shards []client.Shard, text []byte) ([]Preview, error) {
	if n := len(text); n > MaxPreviewText {
		return nil, fmt.Errorf("the config has %d bytes, and at most %d are allowed: %w", n, MaxPreviewText, ErrPreviewText)
	}
	return each(ctx, c, shards, func(ctx context.Context, shard string, s client.Service) (Preview, error) {
		resp, err := s.PreviewConfig(ctx, &nstancev1.PreviewConfigRequest{Text: text})
		return Preview{shard, resp}, err
	})
}

// TextProblems returns what a shard's error says is wrong with the text of a preview, with the
// positions in it; nil for an error that is not about the text.
func TextProblems(text []byte, err error) config.Located {
	violations := rpc.Violations(err)
	if len(violations) == 0 {
		return nil
	}
	problems := make(config.Problems, len(violations))
	for n, v := range violations {
		problems[n] = config.Problem{Path: v.Field, Message: v.Description}
	}
	return config.Locate(text, problems)
}
