package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/admin/httpapi"
	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// telling is shards that tell what a test has them tell.
type telling struct {
	shards
	told chan admin.Event
}

func (s *telling) WatchState(ctx context.Context, _ []client.Shard, _ []string, see func(admin.Event) error) error {
	for {
		select {
		case e := <-s.told:
			if err := see(e); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *telling) tell(group string) {
	g := &admin.Group{Shard: "one", GroupStatus: &nstancev1.GroupStatus{Key: group}}
	s.told <- admin.Event{Kind: admin.EventGroup, Of: client.WatchGroups, Shard: "one", Group: g}
}

// tokenInFile replaces a file by one with a token, of this mode.
func tokenInFile(t *testing.T, path, token string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(token+"\n"), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestStreamsEndWithTheirToken: once a token is not accepted, its open streams deliver nothing any more, and
// end with the next event, or without one when a heartbeat is due.
func TestStreamsEndWithTheirToken(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(t *testing.T, path string)
		goes bool // the stream goes on
	}{
		"another token": {edit: func(t *testing.T, path string) { tokenInFile(t, path, "another-token-that-is-long", 0o600) }},
		"no file": {edit: func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}},
		"an invalid file":          {edit: func(t *testing.T, path string) { tokenInFile(t, path, full+"\nshort", 0o600) }},
		"readable by others":       {edit: func(t *testing.T, path string) { tokenInFile(t, path, full, 0o644) }},
		"one more token":           {edit: func(t *testing.T, path string) { tokenInFile(t, path, full+"\n"+readOnly, 0o600) }, goes: true},
		"the same file, unchanged": {edit: func(*testing.T, string) {}, goes: true},
	} {
		for _, events := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "tokens")
				tokenInFile(t, path, full, 0o600)
				synctest.Test(t, func(t *testing.T) { streamOf(t, path, func() { c.edit(t, path) }, events, c.goes) })
			})
		}
	}
}

// streamOf opens a stream, edits the file of its token, and checks what follows.
func streamOf(t *testing.T, path string, edit func(), events, goes bool) {
	t.Helper()
	tokens, err := httpapi.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	shards := &telling{told: make(chan admin.Event)}
	conn, err := servedTo(t, shards, httpapi.Access{Full: tokens}).DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+full+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", answer, err)
	}
	defer answer.Body.Close()
	shards.tell("before")
	synctest.Wait() // until that is sent
	edit()
	edited := time.Now()
	if events {
		shards.tell("after")
	}
	if err := conn.SetReadDeadline(edited.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	took := time.Since(edited)
	switch {
	case !strings.Contains(string(text), `"before"`):
		t.Errorf("%s: want what came before", text)
	case goes && (err == nil || strings.Contains(string(text), `"after"`) != events || !strings.Contains(string(text), ": alive")):
		t.Errorf("ended after %s: %s", took, text)
	case !goes && (err != nil || strings.Contains(string(text), `"after"`) || events && took > 0 || took > 15*time.Second):
		t.Errorf("%v after %s: %s", err, took, text)
	}
}
