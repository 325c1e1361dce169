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

// entry is one object in a listing. Without text it is omitted.
type entry struct{ key, text string }

// entries returns the entries of a listing's document.
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

// show replaces the entries of a listing's document.
func (a *answer) show(all []entry) {
	a.body = listed.ReplaceAllString(a.body, "")
	var texts strings.Builder
	for _, e := range all {
		texts.WriteString(e.text)
	}
	a.body = strings.Replace(a.body, "</ListBucketResult>", texts.String()+"</ListBucketResult>", 1)
	a.header.Del("Content-Length")
}

// hide omits some objects of a probe and all instance records from listings.
func hide(_ *Store, r request, a *answer) {
	if r.lists {
		a.show(slices.DeleteFunc(entries(a.body), func(e entry) bool {
			return strings.Contains(e.key, "page3") || strings.HasPrefix(e.key, "instance/")
		}))
	}
}

// reverse reverses each page of a listing.
func reverse(_ *Store, r request, a *answer) {
	if r.lists {
		all := entries(a.body)
		slices.Reverse(all)
		a.show(all)
	}
}

// history is what listings showed of each path, with start times.
type history map[string][]state

type state struct {
	since time.Time // zero: from the beginning
	text  string
}

// remember records what listings show of a path from a time on; zero means before the first
// change.
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

// lookUp returns what a listing currently shows of a path.
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

// delay makes listings stale.
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
			case key <= first, more && key > last: // on another page
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

// at returns the text of the state at a time. There is at least one state, which starts at zero.
func at(states []state, moment time.Time) string {
	text := states[0].text
	for _, s := range states {
		if !s.since.After(moment) {
			text = s.text
		}
	}
	return text
}
