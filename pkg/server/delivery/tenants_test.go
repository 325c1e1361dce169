package delivery_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/config"
)

// TestTakenFromATenant: a config newer than a group's definition may revoke sources of its
// tenant's files. Such files are refused by name and nothing of the set is sent; other
// tenants' groups are not affected.
func TestTakenFromATenant(t *testing.T) {
	for what, c := range map[string]struct {
		take func(*config.Shard)
		want string
	}{
		"a secret": {
			func(s *config.Shard) { s.Secrets = nil }, `file db.conf: source: the secret "db" is not for tenant "prod"`,
		},
		"a stored file": {
			func(s *config.Shard) {
				s.Files = map[string]config.Access{"files/": {Tenants: config.Tenants{"default"}}}
			},
			`file net.json: source: the stored file "files/net.json" is not for tenant "prod"`,
		},
		"a certificate": {
			func(s *config.Shard) {
				k := s.Certificates["k"]
				k.Tenants = nil
				s.Certificates = map[string]config.Certificate{"k": k}
			},
			`file k.crt: template: the certificate "k" is not for tenant "prod"`,
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, allKinds, func(t *testing.T, f *fixture) {
				locked(f, func() bool {
					narrow := *f.static
					c.take(&narrow)
					f.static = &narrow
					return true
				})
				f.connected("prod").receivesNothing()
				f.connected("default").inOrder()
				if told := f.reported(); len(told) != 1 || !strings.HasPrefix(told[0], "prod/web FilesInvalid: "+c.want) {
					t.Errorf("told %q, want %s", told, c.want)
				}
			})
		})
	}
}

// TestLeftFiles: in a disabled group, a file that its tenant may no longer have stays as it
// is, and the others are updated. If it is not on the machine it is not part of the set.
func TestLeftFiles(t *testing.T) {
	for what, had := range map[string]bool{"a machine that has it": true, "a new one": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, allKinds, func(t *testing.T, f *fixture) {
				a := f.instance("prod")
				if had {
					a.connect()
					a.inOrder()
				}
				locked(f, func() bool {
					narrow := *f.static
					narrow.Secrets = nil
					f.static = &narrow
					f.secrets["db"] = "of default alone"
					for key, g := range f.groups {
						g.Disabled = "not for this tenant any more"
						f.groups[key] = g
					}
					return true
				})
				f.put("files/net.json", `{"mtu":9000}`)
				if f.d.Refreshed(); !had {
					a.connect()
				}
				synctest.Wait()
				before := a.disk["k.crt"]
				time.Sleep(17 * time.Hour) // two thirds of the certificate's life
				a.report()
				synctest.Wait()
				has := a.disk["db.conf"]
				if string(has) != map[bool]string{true: "password"}[had] || string(a.disk["net.json"]) != `{"mtu":9000}` {
					t.Errorf("it has %q and %q", has, a.disk["net.json"])
				}
				if len(before) == 0 || bytes.Equal(before, a.disk["k.crt"]) {
					t.Error("its certificate was not renewed")
				}
				if told := f.reported(); len(told) > 0 {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}

// TestHeldGroups: a disabled group has files as long as it defines them.
func TestHeldGroups(t *testing.T) {
	for what, held := range map[string]bool{"it says what files": false, "nothing says it": true} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, plain, func(_ *testing.T, f *fixture) {
				locked(f, func() bool {
					for key, g := range f.groups {
						g.Disabled, g.FilesHeld = "not for this tenant any more", held
						f.groups[key] = g
					}
					return true
				})
				if a := f.connected("prod"); held {
					a.receivesNothing()
				} else {
					a.inOrder()
				}
			})
		})
	}
}
