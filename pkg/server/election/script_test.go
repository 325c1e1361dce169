package election

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/object"
)

var rewrite = flag.Bool("rewrite", false, "write what the machine does into the scripts")

// TestScripts plays testdata/scripts/*.txt on one machine. A line is a time on the monotonic
// clock and an event; the lines with > below it are the machine's commands and its resulting
// phase.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := playScript(string(script))
			if err != nil {
				t.Fatal(err)
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(script) && !*rewrite {
				t.Errorf("%s differs, if that is right: go test ./pkg/server/election -run TestScripts -rewrite\n%s", file, got)
			}
		})
	}
}

// player keeps the ids that a driver would keep.
type player struct {
	m    *machine
	time stopwatch
	op   uint64
	peer uint64
	wall time.Duration // offset of the wall clock
}

func playScript(script string) (string, error) {
	p := player{m: newMachine(Config{
		Holder: "me", Addrs: Addrs{Election: "my-host"}, Peers: httpDialer{},
		Timing: Timing{RenewInterval: 10 * time.Second, LeaseDuration: 30 * time.Second, FenceWindow: time.Second, GiveUp: 30 * time.Second},
	})}
	var out strings.Builder
	for n, line := range strings.Split(strings.TrimRight(script, "\n"), "\n") {
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		at, err := time.ParseDuration(words[0])
		if err != nil || len(words) < 2 {
			return "", fmt.Errorf("line %d: want a time and what happens, have %q", n+1, line)
		}
		now := p.time.read(Moment{Mono: at, Wall: time.Unix(0, 0).Add(at + p.wall)})
		if err := p.happen(now, words[1], words[2:]); err != nil {
			return "", fmt.Errorf("line %d: %w", n+1, err)
		}
		p.report(&out)
	}
	return out.String(), nil
}

func (p *player) report(out *strings.Builder) {
	for _, c := range p.m.commands() {
		switch c := c.(type) {
		case getRecord:
			p.op = c.id
		case putRecord:
			p.op = c.id
		case askFirstEpoch:
			p.op = c.id
		case dialPeer:
			p.peer = c.id
		}
		fmt.Fprintf(out, "> %s\n", c)
	}
	wake := "never"
	if p.m.wake >= 0 {
		wake = "in " + p.m.wake.String()
	}
	fmt.Fprintf(out, "> = %s, wakes %s\n", p.m.phase, wake)
}

func (p *player) happen(now instant, what string, args []string) error {
	m := p.m
	switch what {
	case "start":
		m.start(now)
	case "tick":
		m.tick(now)
	case "stop":
		m.stop(now)
	case "act":
		m.demand(now, 0)
	case "retime":
		t, err := scriptTiming(args)
		m.retime(now, t)
		return err
	case "lead-returned":
		m.leadReturned(now)
	case "wall":
		jump, err := time.ParseDuration(args[0])
		p.wall += jump
		return err
	case "absent":
		m.gotRecord(now, p.op, Record{}, "", object.ErrNotFound)
	case "unreadable":
		m.gotRecord(now, p.op, Record{}, "", errors.New("parse election record"))
	case "get-unknown":
		m.gotRecord(now, p.op, Record{}, "", object.ErrUnknown)
	case "epoch":
		epoch, err := strconv.ParseUint(args[0], 10, 64)
		m.gotFirstEpoch(now, p.op, epoch, err)
	case "record":
		r, etag, err := scriptRecord(args)
		m.gotRecord(now, p.op, r, etag, err)
		return err
	case "put-ok":
		m.putDone(now, p.op, object.ETag(args[0]), nil)
	case "put-conflict":
		m.putDone(now, p.op, "", object.ErrConflict)
	case "put-unknown":
		m.putDone(now, p.op, "", object.ErrUnknown)
	case "peer-leads":
		r, etag, err := scriptRecord(args)
		m.peerLine(now, p.peer, Line{Server: r.Holder, ETag: etag, Rev: r.Rev, Released: r.Released, Record: &r})
		return err
	case "peer-is":
		m.peerLine(now, p.peer, Line{Server: args[0]})
	case "peer-renewed", "peer-released":
		rev, err := strconv.ParseUint(args[0], 10, 64)
		m.peerLine(now, p.peer, Line{ETag: object.ETag(args[1]), Rev: rev, Released: what == "peer-released"})
		return err
	case "lacks":
		for n := range needsEnd {
			if n.String() == strings.Join(args[1:], " ") {
				m.lack.Need = n
			}
		}
		var err error
		if m.lack.For, err = time.ParseDuration(args[0]); err != nil {
			return err
		}
		m.tick(now)
	case "answer":
		ask, err := strconv.ParseUint(args[1], 10, 64)
		m.gotAnswer(now, Answer{Server: args[0], Leader: args[3], Ask: ask, Ready: args[2] == "ready"})
		return err
	case "peer-asks":
		ask, err := strconv.ParseUint(args[0], 10, 64)
		m.peerLine(now, p.peer, Line{ETag: m.view.etag, Rev: m.view.record.Rev, Ask: ask})
		return err
	case "peer-closed":
		m.peerClosed(now, p.peer)
	case "peer-refused":
		m.peerRefused(now, p.peer)
	case "peer-timeout":
		m.peerFailed(now, p.peer)
	default:
		return fmt.Errorf("what is %q?", what)
	}
	return nil
}

// scriptTiming parses "renew lease window".
func scriptTiming(args []string) (t Timing, err error) {
	for n, to := range []*time.Duration{&t.RenewInterval, &t.LeaseDuration, &t.FenceWindow} {
		if *to, err = time.ParseDuration(args[n]); err != nil {
			return t, err
		}
	}
	return t, t.Validate()
}

// scriptRecord parses "holder epoch rev window etag [released [successor]]".
func scriptRecord(args []string) (Record, object.ETag, error) {
	if len(args) < 5 {
		return Record{}, "", fmt.Errorf("want holder epoch rev window etag, have %q", args)
	}
	epoch, err1 := strconv.ParseUint(args[1], 10, 64)
	rev, err2 := strconv.ParseUint(args[2], 10, 64)
	window, err3 := time.ParseDuration(args[3])
	r := Record{
		Holder: args[0], Epoch: epoch, Rev: rev, FenceWindow: window, LeaseDuration: 30 * time.Second,
		Addrs: Addrs{Election: args[0] + "-host"}, Released: len(args) > 5 && args[5] == "released",
	}
	if len(args) > 6 {
		r.Successor = args[6]
	}
	return r, object.ETag(args[4]), errors.Join(err1, err2, err3)
}
