package quirks

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	listed    = regexp.MustCompile(`(?s)<Contents>.*?</Contents>`)
	listedKey = regexp.MustCompile(`(?s)<Key>(.*?)</Key>`)
)

// entry is one object as a listing shows it. One without text is not shown.
type entry struct{ key, text string }

// entries are those of a listing's document.
func entries(body string) (all []entry) {
	for _, text := range listed.FindAllString(body, -1) {
		key := ""
		if found := listedKey.FindStringSubmatch(text); found != nil {
			key = found[1]
		}
		if plain, err := url.QueryUnescape(key); err == nil {
			key = plain // the client asks for escaped keys
		}
		all = append(all, entry{key, text})
	}
	return all
}

// show has a listing's document show other entries.
func (a *answer) show(all []entry) {
	a.body = listed.ReplaceAllString(a.body, "")
	var texts strings.Builder
	for _, e := range all {
		texts.WriteString(e.text)
	}
	a.body = strings.Replace(a.body, "</ListBucketResult>", texts.String()+"</ListBucketResult>", 1)
	a.header.Del("Content-Length")
}

// hide has listings lack some of what a check writes, and all records of instances.
func hide(_ *Store, r request, a *answer) {
	if r.lists {
		a.show(slices.DeleteFunc(entries(a.body), func(e entry) bool {
			return strings.Contains(e.key, "page3") || strings.HasPrefix(e.key, "instance/")
		}))
	}
}

// reverse has each page of a listing in the opposite order.
func reverse(_ *Store, r request, a *answer) {
	if r.lists {
		all := entries(a.body)
		slices.Reverse(all)
		a.show(all)
	}
}

// history is what a listing showed of each path, and from when on.
type history map[string][]state

type state struct {
	since time.Time // zero: since ever
	text  string
}

// remember notes what a listing shows of a path, from a moment on. The zero moment is that
// before the first change.
func (s *Store) remember(ctx context.Context, path string, since time.Time) {
	known := false
	if s.do(func() { known = len(s.history[path]) > 0 }); known && since.IsZero() {
		return
	}
	text := s.lookUp(ctx, path)
	s.do(func() {
		if since.IsZero() && len(s.history[path]) > 0 {
			return
		}
		s.history[path] = append(s.history[path], state{since, text})
	})
}

// lookUp returns what a listing shows of a path now.
func (s *Store) lookUp(ctx context.Context, path string) string {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	target := "/" + bucket + "/?list-type=2&encoding-type=url&prefix=" + url.QueryEscape(key)
	ask := httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	answer := httptest.NewRecorder()
	s.inner.ServeHTTP(answer, ask)
	for _, e := range entries(answer.Body.String()) {
		if e.key == key {
			return e.text
		}
	}
	return ""
}

// delay has listings show what was there some time ago.
func delay(s *Store, r request, a *answer) {
	if !r.lists || a.status != http.StatusOK {
		return
	}
	shown := map[string]string{}
	first, last := r.URL.Query().Get("start-after"), ""
	for _, e := range entries(a.body) {
		shown[e.key], last = e.text, e.key
	}
	more := strings.Contains(a.body, "<IsTruncated>true</IsTruncated>")
	before := time.Now().Add(-Late)
	bucket := "/" + strings.Trim(r.URL.Path, "/") + "/"
	s.do(func() {
		for path, states := range s.history {
			key, ours := strings.CutPrefix(path, bucket)
			switch {
			case !ours || !strings.HasPrefix(key, r.URL.Query().Get("prefix")):
			case key <= first, more && key > last: // it is of another page
			default:
				shown[key] = at(states, before)
			}
		}
	})
	var all []entry
	for key, text := range shown {
		all = append(all, entry{key, text})
	}
	slices.SortFunc(all, func(x, y entry) int { return cmp.Compare(x.key, y.key) })
	a.show(all)
}

// at is the text of the state that held at a moment. One is there: since ever.
func at(states []state, moment time.Time) string {
	text := states[0].text
	for _, s := range states {
		if !s.since.After(moment) {
			text = s.text
		}
	}
	return text
}
