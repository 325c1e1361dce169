package operators

import (
	"context"
	"fmt"

	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/server/preview"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// ConfigPreview is what a switch of the static config does.
type ConfigPreview struct {
	preview.Preview

	ETag string // of the static config in the bucket; empty for another text
	// RestartRequired names the config fields that take effect only after a restart.
	RestartRequired []string
	// Removals have to be accepted, sorted by key.
	Removals []Removal
	// Deleted is what the config's retention of deleted records keeps.
	Deleted preview.DeletedRecords
}

// Refreshed is the outcome of a refresh.
type Refreshed struct {
	ConfigStatus

	Updated bool
	Preview ConfigPreview // what was done, if Updated
}

// MaxPreviewText is the largest text of a preview, in bytes.
const MaxPreviewText = 1_000_000

// PreviewConfig shows what RefreshConfig would do with the static config, or with the text of the
// request, and changes nothing. It returns INVALID_ARGUMENT with every violation if that is
// invalid, and UNAVAILABLE if the store fails. It concerns the whole shard, so only tenant default
// may call it.
func (s *Service) PreviewConfig(ctx context.Context, req *nstancev1.PreviewConfigRequest) (*nstancev1.PreviewConfigResponse, error) {
	shard, err := s.openConfig(ctx)
	if err != nil {
		return nil, err
	}
	text := req.GetText()
	if n := len(text); n > MaxPreviewText {
		return nil, rpc.InvalidField("text", fmt.Sprintf("%d bytes: at most %d can be previewed", n, MaxPreviewText))
	}
	if req.Text != nil && text == nil {
		text = []byte{}
	}
	p, err := shard.Static.Preview(ctx, text)
	if err != nil {
		return nil, err
	}
	return &nstancev1.PreviewConfigResponse{Etag: p.ETag, Preview: p.message()}, nil
}

func (p ConfigPreview) message() *nstancev1.ConfigPreview {
	m := &nstancev1.ConfigPreview{
		RestartRequired: p.RestartRequired, ShardSurge: int32(p.ShardSurge), DeletedRecords: deletedMessage(p.Deleted),
	}
	for _, g := range p.Groups {
		m.Groups = append(m.Groups, &nstancev1.GroupPreview{
			Tenant: g.Key.Tenant, Group: g.Key.Name, Change: changeMessage(g.Change),
			SizeBefore: int32(g.SizeBefore), Size: int32(g.Size), Instances: int32(g.Instances),
			Replaced: int32(g.Replaced), AtATime: int32(g.AtATime),
			PushedFiles: g.Pushed, DroppedFiles: g.Dropped, Fields: g.Fields, Disabled: g.Disabled,
		})
	}
	for _, r := range p.Removals {
		m.Removals = append(m.Removals, r.message())
	}
	for _, o := range p.Overrides {
		m.SizeOverrides = append(m.SizeOverrides, overrideMessage(o))
	}
	return m
}

func deletedMessage(d preview.DeletedRecords) *nstancev1.DeletedRecords {
	return &nstancev1.DeletedRecords{
		Kept: int64(d.Kept), WindowSeconds: int64(d.Window.Seconds()), Expected: d.Expected, ExpectedBytes: d.ExpectedBytes,
	}
}

func overrideMessage(o preview.Override) *nstancev1.SizeOverride {
	return &nstancev1.SizeOverride{
		Tenant: o.Key.Tenant, Group: o.Key.Name, StaticSize: int32(o.StaticSize), Size: int32(o.Size), Manager: o.Manager,
	}
}

func changeMessage(c preview.Change) nstancev1.GroupChange {
	switch c {
	case preview.Added:
		return nstancev1.GroupChange_GROUP_CHANGE_ADDED
	case preview.Removed:
		return nstancev1.GroupChange_GROUP_CHANGE_REMOVED
	case preview.Outlives:
		return nstancev1.GroupChange_GROUP_CHANGE_OUTLIVES
	case preview.Adopted:
		return nstancev1.GroupChange_GROUP_CHANGE_ADOPTED
	default:
		return nstancev1.GroupChange_GROUP_CHANGE_CHANGED
	}
}
