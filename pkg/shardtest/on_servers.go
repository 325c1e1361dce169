package shardtest

import (
	"fmt"
	"time"
)

// errNothing returns the error of a step that has no effect; the script continues.
func nothing(format string, args ...any) error {
	return fmt.Errorf("nothing happens: "+format, args...)
}

// place returns the server with a name; leader and follower are resolved by the election
// record.
func (s *Shard) place(name string) (*server, error) {
	leader, _ := s.book.leader()
	for _, v := range s.servers {
		leads := v.starts > 0 && v.lifeName() == leader
		switch {
		case name == v.name, name == "leader" && leads, name == "follower" && !leads && v.alive():
			return v, nil
		}
	}
	return nil, nothing("there is no server %s", name)
}

// living returns the server with a name, if its process runs.
func (s *Shard) living(name string) (*server, error) {
	v, err := s.place(name)
	if err == nil && !v.alive() {
		return nil, nothing("server %s does not run", v.name)
	}
	return v, err
}

func (v *server) alive() bool { return v.running() && !dead(v.life) }

func doStart(s *Shard, a args) error {
	v, err := s.place(a.words[0])
	switch {
	case err != nil:
		return err
	case v.alive():
		return nothing("server %s runs already", v.name)
	}
	v.start()
	return nil
}

func doStop(s *Shard, a args) error {
	v, err := s.living(a.words[0])
	if err == nil {
		v.terminate()
	}
	return err
}

func doCrash(s *Shard, a args) error {
	v, err := s.living(a.words[0])
	if err == nil {
		v.life.kill("of a crash")
	}
	return err
}

func doCrashBefore(s *Shard, a args) error { return s.arm(a, crash{}) }
func doCrashAfter(s *Shard, a args) error  { return s.arm(a, crash{after: true}) }

// doSuspendBefore suspends the process as it is about to make a request.
func doSuspendBefore(s *Shard, a args) error { return s.arm(a, crash{freeze: true}) }

func (s *Shard) arm(a args, c crash) error {
	v, err := s.living(a.words[0])
	if err == nil {
		c.requests = a.count
		v.life.arm(c)
	}
	return err
}

func doSuspend(s *Shard, a args) error {
	v, err := s.living(a.words[0])
	if err == nil {
		s.Timeline.Say(v.lifeName(), "is suspended")
		v.suspend()
	}
	return err
}

func doResume(s *Shard, a args) error {
	v, err := s.living(a.words[0])
	if err == nil {
		s.Timeline.Say(v.lifeName(), "goes on")
		v.resume()
	}
	return err
}

func doWait(_ *Shard, a args) error {
	time.Sleep(a.span)
	return nil
}

func doSettle(s *Shard, a args) error { return s.Converge(a.span) }
