package leader

import (
	"time"

	"github.com/nstance/nstance/pkg/config"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/server/images"
)

// ReasonImage is the reason of problems with looking up machine images.
const ReasonImage = "ImageError"

// newImages makes the term's cache of images. It goes by the config that runs.
func (t *Term) newImages() *images.Cache {
	resolver, _ := t.cfg.Provider.(provider.ImageResolver)
	return images.New(images.Config{
		Resolver: resolver,
		Interval: func() time.Duration { return time.Duration(t.static.shard().Server.ImageRefreshInterval) },
		Timeout:  t.requestTimeout,
		Report: func(_ string, err error) {
			t.troubles.report(fleet.Problem{At: t.cfg.Now(), Reason: ReasonImage, Message: err.Error()})
		},
		Logger: t.cfg.Logger,
	})
}

// imagesOf are the images that a group's instances are made with, or that files
// of theirs name.
func (t *Term) imagesOf(g fleet.Group) map[string]images.Image {
	shard := t.static.shard()
	used := map[string]images.Image{}
	for _, name := range shard.ImagesOf(g) {
		used[name] = imageOf(shard.Images[name])
	}
	return used
}

// usedImages are the images that any group uses.
func (t *Term) usedImages() map[string]images.Image {
	used := map[string]images.Image{}
	for _, key := range t.wanted.Keys() {
		g, _ := t.wanted.Group(key)
		for name, image := range t.imagesOf(g) {
			used[name] = image
		}
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

// keepImages refreshes the images that are used while the term lasts.
func (t *Term) keepImages() {
	t.images.Run(t.ctx, t.usedImages)
}
