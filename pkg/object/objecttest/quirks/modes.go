package quirks

import (
	"net/http"
	"time"
)

// Late is the lag of late listings.
const Late = 3 * time.Second

// skew is the error of a wrong clock.
const skew = 7 * time.Hour

func all() []quirk {
	return []quirk{
		{name: "conditions ignored", asks: ignoreConditions},
		{name: "conditions inverted", asks: invertConditions},
		{name: "weak ETags", answers: weaken},
		{name: "missing ETags", answers: func(_ *Store, _ request, a *answer) { a.header.Del("ETag") }},
		{name: "409 for 412", answers: conflict},
		{name: "hidden keys", answers: hide},
		{name: "late listings", answers: delay},
		{name: "unordered listings", answers: reverse},
		{name: "no page tokens", asks: forgetTokens},
		{name: "delete markers", refuses: markers},
		{name: "clock skew", refuses: func(*Store, request) (int, string) { return http.StatusForbidden, "RequestTimeTooSkewed" }},
		{name: "Date ahead", answers: dated(skew)},
		{name: "Date behind", answers: dated(-skew)},
		{name: "5xx before landing", refuses: failBefore},
		{name: "5xx after landing", answers: failAfter},
		{name: "replies cut", answers: func(_ *Store, r request, a *answer) { a.cut = r.third() }},
		{name: "one write at a time", refuses: onlyOne},
		{name: "one write a second", refuses: oneASecond},
	}
}

func ignoreConditions(r request) {
	r.Header.Del("If-Match")
	r.Header.Del("If-None-Match")
}

func invertConditions(r request) {
	if r.put && r.Header.Get("If-None-Match") != "" {
		r.Header.Del("If-None-Match")
		r.Header.Set("If-Match", "*")
	}
}

func weaken(_ *Store, _ request, a *answer) {
	if etag := a.header.Get("ETag"); etag != "" {
		a.header.Set("ETag", "W/"+etag)
	}
}

func conflict(_ *Store, _ request, a *answer) {
	if a.status == http.StatusPreconditionFailed {
		*a = refusal(http.StatusConflict, "ConditionalRequestConflict")
	}
}

func forgetTokens(r request) {
	q := r.URL.Query()
	q.Del("start-after")
	q.Del("continuation-token")
	r.URL.RawQuery = q.Encode()
}

// markers refuses to recreate deleted objects, because the delete marker counts as an object.
func markers(s *Store, r request) (status int, code string) {
	s.do(func() {
		switch {
		case r.Method == http.MethodDelete:
			s.deleted[r.URL.Path] = true
		case r.put && s.deleted[r.URL.Path] && r.Header.Get("If-None-Match") != "":
			status, code = http.StatusPreconditionFailed, "PreconditionFailed"
		}
	})
	return status, code
}

// dated shifts the Date header of responses.
func dated(off time.Duration) func(*Store, request, *answer) {
	return func(_ *Store, _ request, a *answer) {
		a.header.Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
	}
}

func failBefore(_ *Store, r request) (status int, code string) {
	if r.third() {
		return http.StatusInternalServerError, "InternalError"
	}
	return 0, ""
}

func failAfter(_ *Store, r request, a *answer) {
	if r.third() {
		*a = refusal(http.StatusBadGateway, "BadGateway")
	}
}

// onlyOne refuses every other write of a key.
func onlyOne(s *Store, r request) (status int, code string) {
	s.do(func() {
		if r.put && s.busy[r.URL.Path] {
			s.busy[r.URL.Path] = false
			status, code = http.StatusServiceUnavailable, "SlowDown"
			return
		}
		s.busy[r.URL.Path] = r.put
	})
	return status, code
}

// oneASecond refuses a write of a key within a second of the previous one, with one of the two
// statuses that stores use.
func oneASecond(s *Store, r request) (status int, code string) {
	if !r.put {
		return 0, ""
	}
	s.do(func() {
		switch now := time.Now(); {
		case now.Sub(s.written[r.URL.Path]) >= time.Second:
			s.written[r.URL.Path] = now
		case r.nth%2 == 0:
			status, code = http.StatusTooManyRequests, "SlowDown"
		default:
			status, code = http.StatusServiceUnavailable, "SlowDown"
		}
	})
	return status, code
}
