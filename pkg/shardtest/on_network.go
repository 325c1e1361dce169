package shardtest

import "strings"

// hosts returns the addresses of a name in a script.
func (s *Shard) hosts(name string) (addrs []string, err error) {
	switch {
	case name == "operator":
		return []string{operatorAddr}, nil
	case name == "agents":
		for _, m := range s.allMachines() {
			addrs = append(addrs, m.addr)
		}
		return addrs, nil
	case strings.HasPrefix(name, "any"), name[0] == 'i':
		m, err := s.pick(name)
		if err != nil {
			return nil, err
		}
		return []string{m.addr}, nil
	default:
		v, err := s.place(name)
		if err != nil {
			return nil, err
		}
		return []string{v.addr}, nil
	}
}

func doCut(s *Shard, a args) error  { return s.connect(a.words[0], a.words[1], false) }
func doJoin(s *Shard, a args) error { return s.connect(a.words[0], a.words[1], true) }

// connect heals or cuts the link of two hosts, or of a server and the store.
func (s *Shard) connect(one, other string, join bool) error {
	if one == "store" {
		one, other = other, one
	}
	if other == "store" {
		v, err := s.place(one)
		if err == nil {
			v.reach(join)
		}
		return err
	}
	here, err := s.hosts(one)
	if err != nil {
		return err
	}
	there, err := s.hosts(other)
	if err != nil {
		return err
	}
	for _, a := range here {
		for _, b := range there {
			if join {
				s.network.Heal(a, b)
			} else if a != b {
				s.network.Cut(a, b)
			}
		}
	}
	return nil
}

// reach connects a server to the store, or disconnects it, whatever process runs there.
func (v *server) reach(store bool) {
	v.cutOff = !store
	switch {
	case v.life == nil:
	case store:
		v.life.unblock()
	default:
		v.life.block()
	}
}
