package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/agent"
	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// pusher is a server's side of the stream of files.
type pusher struct {
	t      *testing.T
	events chan *nstancev1.ReceiveFilesResponse
	cut    chan struct{}
}

func (s *server) pusher() *pusher {
	p := &pusher{t: s.w.t, events: make(chan *nstancev1.ReceiveFilesResponse, 1000), cut: make(chan struct{})}
	s.set(func() {
		s.pushFiles = func(stream nstancev1.AgentService_ReceiveFilesServer) error {
			for {
				select {
				case e := <-p.events:
					if err := stream.Send(e); err != nil {
						return err
					}
				case <-p.cut:
					return nil
				case <-stream.Context().Done():
					return stream.Context().Err()
				}
			}
		}
	})
	return p
}

func (p *pusher) file(name, content string) {
	p.events <- fileEvent(name, content)
}

func (p *pusher) commit(hash string, names ...string) {
	p.events <- commitEvent(hash, names...)
	settle(0)
}

func fileEvent(name, content string) *nstancev1.ReceiveFilesResponse {
	return &nstancev1.ReceiveFilesResponse{Event: &nstancev1.ReceiveFilesResponse_File{File: &nstancev1.File{Name: name,
		Content: []byte(content)}}}
}

func commitEvent(hash string, names ...string) *nstancev1.ReceiveFilesResponse {
	return &nstancev1.ReceiveFilesResponse{Event: &nstancev1.ReceiveFilesResponse_Commit{Commit: &nstancev1.FilesCommit{ConfigHash: hash,
		Names: names}}}
}

// last returns the latest report, with its files abbreviated.
func (s *server) last() (r report, shown string) {
	all := s.seen().reports
	if len(all) == 0 {
		s.w.t.Fatal("no report came")
	}
	r = all[len(all)-1]
	var each []string
	for _, f := range r.GetFiles() {
		text := f.GetName() + " " + strings.ToLower(strings.TrimPrefix(f.GetState().String(), "FILE_STATE_"))
		if f.GetSha256() != "" {
			text += " " + f.GetSha256()[:4]
		}
		each = append(each, text)
	}
	return r, fmt.Sprintf("%q %s", r.GetConfigHash(), strings.Join(each, ", "))
}

func short(content string) string { return files.Digest([]byte(content))[:4] }

// expect fails unless the latest report came at once and matches.
func (s *server) expect(want string) {
	s.w.t.Helper()
	r, got := s.last()
	if got != want {
		s.w.t.Errorf("the latest report says %s, want %s", got, want)
	}
	if time.Since(r.at) != 0 {
		s.w.t.Errorf("the report of %s came %s ago", got, time.Since(r.at))
	}
}

func TestFilesArrive(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		push := server.pusher()
		p := f.start(f.config())
		settle(time.Second)
		if r, got := server.last(); got != `"" ` || len(r.GetFiles()) != 0 {
			t.Errorf("before any set %s is reported", got)
		}
		settle(time.Second)
		push.commit("h0")
		server.expect(`"h0" `)

		settle(time.Second)
		cert := pki.EncodeCertificate(f.ca.Certificate())
		push.file("a.conf", "first")
		push.file("a.conf", "second")
		push.file("ca.crt", string(cert))
		settle(10 * time.Second)
		if len(server.seen().reports) != 2 || f.file("recv/a.conf") != "" {
			t.Error("files are taken over before their commit")
		}
		push.commit("h1", "a.conf", "ca.crt")
		server.expect(`"h1" a.conf present ` + short("second") + `, ca.crt present ` + short(string(cert)))
		r, _ := server.last()
		leaf := must(files.ReadLeaf(cert))(t)
		if cert := r.GetFiles()[1]; !cert.GetNotAfter().AsTime().Equal(leaf.NotAfter) || cert.GetPublicKeySha256() != leaf.PublicKeySHA256 {
			t.Errorf("the certificate is reported as %v", cert)
		}
		if f.file("recv/a.conf") != "second" || !strings.HasPrefix(f.file("recv/config.hash"), "h1\n") {
			t.Error("the files are not there")
		}
		if s := f.status(); s.ConfigHash != "h1" || len(s.Files) != 2 || s.Files[1].State != "present" || s.Files[1].ExpiresAt == nil {
			t.Errorf("status %+v", s)
		}

		f.put("recv/a.conf", "edited")
		os.Remove(filepath.Join(f.dir, "recv/ca.crt"))
		settle(time.Minute)
		edited := `"h1" a.conf present ` + short("edited") + `, ca.crt missing`
		if _, got := server.last(); got != edited {
			t.Errorf("after an edit %s is reported, want %s", got, edited)
		}
		p.end()
		p = f.start(f.config())
		settle(0)
		server.expect(edited)
		p.end()
	})
}

func TestFailedSets(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		push := server.pusher()
		p := f.start(f.config())
		settle(time.Second)
		push.file("a.conf", "1")
		push.commit("h1", "a.conf")
		settle(time.Second)

		present := `"h1" a.conf present ` + short("1")
		fill := func(n, size int) (names []string) {
			for i := range n {
				names = append(names, fmt.Sprintf("%d.conf", i))
				push.file(names[i], strings.Repeat("x", size))
			}
			return names
		}
		for _, c := range []struct {
			what string
			push func()
			want string // the whole report; empty: a.conf unchanged, and everything failed
			why  string
		}{
			{"bad content", func() {
				push.file("a.conf", "2")
				push.file("b.json", "{")
				push.commit("h2", "a.conf", "b.json")
			}, present + ", b.json failed", "not JSON"},
			{"a name with a separator", func() {
				push.file("../escaped.conf", "2")
				push.commit("h2", "../escaped.conf", "a.conf")
			}, `"h1" a.conf failed ` + short("1"), "not a valid file name"},
			{"a long file", func() {
				push.file("b.conf", strings.Repeat("x", files.MaxFileSize+1))
				push.commit("h2", "b.conf")
			}, present + ", b.conf failed", "at most 1048576"},
			{"not sent", func() { push.commit("h2", "b.conf") }, present + ", b.conf failed", "not sent"},
			{"no hash", func() { push.commit("", "b.conf") }, present + ", b.conf failed", "config hash"},
			{"many files", func() { push.commit("h2", fill(files.MaxFiles+1, 1)...) }, "", "256 files"},
			{"many bytes", func() { push.commit("h2", fill(5, 1<<20)...) }, "", "4194304 bytes at once"},
		} {
			c.push()
			settle(0)
			r, got := server.last()
			if c.want != "" && got != c.want || !strings.HasPrefix(got, `"h1" `) {
				t.Errorf("%s: %s is reported, want %s", c.what, got, c.want)
			}
			if !slices.ContainsFunc(r.GetFiles(), func(file *nstancev1.FileStatus) bool {
				return file.GetState() == nstancev1.FileState_FILE_STATE_FAILED && strings.Contains(file.GetError(), c.why)
			}) || time.Since(r.at) != 0 {
				t.Errorf("%s: after %s reported with %v, want %q", c.what, time.Since(r.at), r.GetFiles(), c.why)
			}
			if f.file("recv/a.conf") != "1" || !strings.HasPrefix(f.file("recv/config.hash"), "h1\n") || f.file("escaped.conf") != "" {
				t.Fatalf("%s: the directory has changed", c.what)
			}
			settle(11 * time.Second)
		}
		push.file("b.json", "{}")
		push.commit("h3", "a.conf", "b.json")
		server.expect(`"h3" a.conf present ` + short("1") + ", b.json present " + short("{}"))
		p.end()
	})
}

// TestServerThatNeverLearns: the server sends a bad set again after every report of it.
func TestServerThatNeverLearns(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		sent := 0
		server.set(func() {
			server.pushFiles = func(stream nstancev1.AgentService_ReceiveFilesServer) error {
				for ; ; sent++ {
					if err := stream.Send(commitEvent("h", "missing.conf")); err != nil {
						return err
					}
				}
			}
		})
		p := f.start(f.config())
		settle(10 * time.Minute)
		if n := len(server.seen().reports); n < 50 || n > 200 {
			t.Errorf("%d reports in ten minutes", n)
		}
		p.end()
		server.down()
	})
}

func TestBrokenStreamDropsWhatWasSent(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		push := server.pusher()
		p := f.start(f.config())
		settle(time.Second)
		push.file("a.conf", "1")
		settle(time.Second)
		push.cut <- struct{}{}
		settle(10 * time.Second)
		push.commit("h", "a.conf")
		server.expect(`"" a.conf failed`)
		push.file("a.conf", "1")
		settle(10 * time.Second)
		push.commit("h", "a.conf")
		server.expect(`"h" a.conf present ` + short("1"))
		p.end()
	})
}

func TestDirectoriesAreApart(t *testing.T) {
	_, err := agent.FromEnv(lookupIn(map[string]string{"NSTANCE_RECV_DIR": "/a/b/", "NSTANCE_KEYS_DIR": "/a/b", "NSTANCE_IDENTITY_DIR": "/c"}))
	if err == nil ||
		!strings.Contains(err.Error(), `NSTANCE_RECV_DIR: "/a/b" is not valid: want another directory than that of NSTANCE_KEYS_DIR`) {
		t.Errorf("got %v", err)
	}
}

// TestLongReports: however many files and errors there are, the server accepts the report,
// since a refused one would end the heartbeat.
func TestLongReports(t *testing.T) {
	withFixture(t, func(f *fixture) {
		server := f.up("10.0.0.1")
		push := server.pusher()
		p := f.start(f.config())
		settle(time.Second)
		fill := func(prefix, content string) (names []string) {
			for i := range files.MaxFiles {
				names = append(names, fmt.Sprintf("%s%s%03d.json", prefix, strings.Repeat("x", 110), i))
				push.file(names[i], content)
			}
			return names
		}
		push.commit("h1", fill("a", "{}")...)
		settle(time.Minute)
		push.commit("h2", fill("b", "{")...)
		settle(time.Minute)
		server.mu.Lock()
		streams := server.streams
		server.mu.Unlock()
		if streams != 1 {
			t.Errorf("%d streams of reports were opened, want one that holds", streams)
		}
		r, _ := server.last()
		if r.GetConfigHash() != "h1" || len(r.GetFiles()) < 200 || time.Since(r.at) > time.Minute {
			t.Errorf("%s ago %d files of %q were reported", time.Since(r.at), len(r.GetFiles()), r.GetConfigHash())
		}
		p.end()
	})
}
