package fake

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Image is a machine image of the world.
type Image struct {
	ID         string
	Owner      string
	Name       string
	CreatedAt  time.Time
	Properties map[string]string // for filters, besides name and image-id
}

var _ provider.ImageResolver = (*Provider)(nil)

// ResolveImage implements provider.ImageResolver. A filter may use any property that at least
// one image has.
func (p *Provider) ResolveImage(ctx context.Context, q provider.ImageQuery) (string, error) {
	r := request{op: OpImage, takes: p.w.cfg.AsideLatency}
	return send(ctx, p, r, func() (string, error) { return resolve(p.w.images, q) })
}

// AddImage adds an image.
func (w *World) AddImage(image Image) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.images = append(w.images, image)
}

// RemoveImage removes the image with an ID.
func (w *World) RemoveImage(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.images = slices.DeleteFunc(w.images, func(i Image) bool { return i.ID == id })
}

// resolve returns the image that q selects.
func resolve(images []Image, q provider.ImageQuery) (string, error) {
	for _, f := range q.Filters {
		known := func(i Image) bool { _, ok := i.property(f.Name); return ok }
		if len(images) > 0 && !slices.ContainsFunc(images, known) {
			return "", fmt.Errorf("%w: no image has a property %.80q to filter by", provider.ErrInvalid, f.Name)
		}
	}
	var found []Image
	for _, i := range images {
		if i.matches(q) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: none of %d images matches", provider.ErrNotFound, len(images))
	}
	slices.SortFunc(found, func(a, b Image) int {
		order := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
		if q.Sort == "name" {
			order = cmp.Or(cmp.Compare(a.Name, b.Name), order)
		}
		if q.Order == "desc" {
			return -order
		}
		return order
	})
	return found[0].ID, nil
}

func (i Image) property(name string) (string, bool) {
	switch name {
	case "name":
		return i.Name, true
	case "image-id":
		return i.ID, true
	default:
		value, ok := i.Properties[name]
		return value, ok
	}
}

// matches reports whether the image has one of the owners and matches every filter.
func (i Image) matches(q provider.ImageQuery) bool {
	if len(q.Owners) > 0 && !slices.Contains(q.Owners, i.Owner) {
		return false
	}
	for _, f := range q.Filters {
		value, ok := i.property(f.Name)
		if !ok || !slices.ContainsFunc(f.Values, func(pattern string) bool { return wild(pattern, value) }) {
			return false
		}
	}
	return true
}

// wild reports whether value matches pattern, in which only * is special and matches any
// characters.
func wild(pattern, value string) bool {
	quoted := strings.NewReplacer(`\`, `\\`, `?`, `\?`, `[`, `\[`, `/`, "\x00").Replace(pattern)
	ok, err := path.Match(quoted, strings.ReplaceAll(value, "/", "\x00")) // * must match slashes too
	return err == nil && ok
}
