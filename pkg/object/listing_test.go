package object_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/object"
)

// pages returns pages by the number of the request.
type pages struct {
	page  func(n int) object.Page
	asked int
}

func (p *pages) List(context.Context, string, string) (object.Page, error) {
	p.asked++
	return p.page(p.asked - 1), nil
}

func pageOf(next string, keys ...string) object.Page {
	page := object.Page{Next: next}
	for _, k := range keys {
		page.Objects = append(page.Objects, object.Info{Key: k, ETag: "e"})
	}
	return page
}

// TestListingsThatLie: a listing that breaks the contract is soon refused, with the keys that
// show it. A store that repeated its first page once made a start hang.
func TestListingsThatLie(t *testing.T) {
	long := strings.Repeat("k", object.MaxKey-20)
	for name, c := range map[string]struct {
		page func(n int) object.Page
		want string
		most int // requests
	}{
		"repeats the page": {
			func(int) object.Page { return pageOf("p/b", "p/a", "p/b") }, `the keys of a listing are not ascending: key "p/a" came after "p/b"`, 2,
		},
		"repeats the border": {
			func(n int) object.Page { return pageOf("t", fmt.Sprintf("p/%d", n), fmt.Sprintf("p/%d", n+1)) }, `"p/1" came after "p/1"`, 2,
		},
		"unordered": {func(int) object.Page { return pageOf("", "p/b", "p/a") }, `key "p/a" came after "p/b"`, 1},
		"twice":     {func(int) object.Page { return pageOf("", "p/a", "p/a") }, `key "p/a" came after "p/a"`, 1},
		"other prefix": {
			func(int) object.Page { return pageOf("", "p/a", "q/b") }, `a listing has keys without its prefix: key "q/b"`, 1,
		},
		"empty for ever": {func(int) object.Page { return pageOf("t") }, "a listing has no end", 102},
		"endless keys": {func(n int) object.Page {
			page := object.Page{Next: "t"}
			for i := range 100_000 {
				page.Objects = append(page.Objects, object.Info{Key: fmt.Sprintf("p/%09d", n*100_000+i), ETag: "e"})
			}
			return page
		}, "a listing has no end: it was cut off after key", 51},
		"endless bytes": {func(n int) object.Page {
			page := object.Page{Next: "t"}
			for i := range 100_000 {
				page.Objects = append(page.Objects, object.Info{Key: fmt.Sprintf("p/%09d", n*100_000+i), ETag: object.ETag(long)})
			}
			return page
		}, "a listing has no end: it was cut off after key", 11},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pages{page: c.page}
			seen, err := 0, error(nil)
			for page, e := range object.Pages(t.Context(), p, "p/") {
				seen, err = seen+len(page), e
			}
			if !errors.Is(err, object.ErrUnfit) || !errors.Is(err, object.ErrUnknown) || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("listing: %v, want ErrUnfit and ErrUnknown that say %q", err, c.want)
			}
			if p.asked > c.most || seen > object.MaxListedKeys {
				t.Errorf("%d requests for %d objects, want at most %d requests", p.asked, seen, c.most)
			}
		})
	}
}

// TestListingsOfEmptyPages: a page may be empty.
func TestListingsOfEmptyPages(t *testing.T) {
	p := &pages{page: func(n int) object.Page {
		switch {
		case n == 300:
			return pageOf("")
		case n%2 == 0:
			return pageOf("t")
		}
		return pageOf("t", fmt.Sprintf("p/%03d", n))
	}}
	if all, err := object.All(t.Context(), p, "p/"); err != nil || len(all) != 150 {
		t.Errorf("%d objects, %v", len(all), err)
	}
}
