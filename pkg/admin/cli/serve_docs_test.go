package cli_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var (
	curlLine = regexp.MustCompile(`(?m)^curl (.+)$`)
	curlWord = regexp.MustCompile(`'[^']*'|\S+`)
)

// curl makes the request of a curl command.
func curl(t *testing.T, command string) (r httpRequest, streams bool) {
	t.Helper()
	r = httpRequest{method: "GET", header: http.Header{}}
	words := curlWord.FindAllString(command, -1)
	for n := 0; n < len(words); n++ {
		value := func() string {
			n++
			return strings.Trim(words[n], "'")
		}
		switch word := words[n]; word {
		case "-s":
		case "-N":
			streams = true
		case "-X":
			r.method = value()
		case "-d":
			r.body = value()
		case "-H":
			name, of, _ := strings.Cut(value(), ": ")
			r.header.Set(name, of)
		default:
			path, ok := strings.CutPrefix(strings.Trim(word, "'"), "http://127.0.0.1:8080")
			if !ok {
				t.Fatalf("curl %s: what is %s?", command, word)
			}
			r.path = path
		}
	}
	return r, streams
}

// TestCurlInDocs: each request in the page of the API succeeds.
func TestCurlInDocs(t *testing.T) {
	c := newFixture(t).register()
	c.shard("dev-1").populate()
	c.shard("dev-2").populate()
	s := c.serve()
	commands := curlLine.FindAllStringSubmatch(read(t, "../../../docs/http-api.md"), -1)
	if len(commands) < 10 {
		t.Fatalf("found only %d requests", len(commands))
	}
	for _, m := range commands {
		r, streams := curl(t, m[1])
		if streams {
			s.events(t, strings.TrimPrefix(r.path, "/events"), "").until("ready", "")
			continue
		}
		if a := s.do(t, r); a.status >= 300 || !json.Valid(a.body) {
			t.Errorf("curl %s: status %d: %s", m[1], a.status, a.body)
		}
	}
}
