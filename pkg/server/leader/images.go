package leader

import (
	"context"
	"maps"
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/images"
)

// ReasonImage is the reason of problems with the lookup of machine images.
const ReasonImage = "ImageError"

// newBuilder returns the term's builder with its image cache, which follows the running config.
func (t *Term) newBuilder() *builder {
	resolver, _ := provider.ImageResolverOf(t.cfg.Provider)
	return &builder{cfg: t.cfg, config: t.config, templates: config.NewTemplates(), images: images.New(images.Config{
		Resolver: resolver,
		Interval: func() time.Duration { return time.Duration(t.config.shard().Server.ImageRefreshInterval) },
		Timeout:  t.config.requestTimeout,
		Report: func(_ string, err error) {
			t.problems.Set(fleet.Problem{At: t.cfg.Now(), Reason: ReasonImage, Message: err.Error()})
		},
		Logger: t.cfg.Logger,
	})}
}

// imagesOf returns the images that a group's machines or files use.
func (b *builder) imagesOf(g fleet.Group) map[string]images.Image {
	shard := b.config.shard()
	used := map[string]images.Image{}
	for _, name := range b.templates.ImagesOf(shard, g) {
		used[name] = imageOf(shard.Images[name])
	}
	return used
}

func imageOf(c config.Image) images.Image {
	q := provider.ImageQuery{Owners: c.Owners, Sort: c.Sort, Order: c.Order}
	for _, f := range c.Filters {
		q.Filters = append(q.Filters, provider.ImageFilter{Name: f.Name, Values: f.Values})
	}
	return images.Image{Query: q, Fallback: c.Fallback}
}

// refreshImages refreshes the images that groups use until ctx ends.
func (t *Term) refreshImages(ctx context.Context) {
	t.builder.images.Run(ctx, func() map[string]images.Image {
		used := map[string]images.Image{}
		for _, key := range t.groups.Keys() {
			g, _ := t.groups.Group(key)
			maps.Copy(used, t.builder.imagesOf(g))
		}
		return used
	})
}
