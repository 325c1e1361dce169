package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/files"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
)

// A machine made from an image of another instance has that one's identity, keys and
// received files. Used, they would be known on two machines. So each directory records
// whose it is, and what is another instance's is set aside: moved into a folder beside it,
// where a person finds it, and never used. That takes evidence that this machine is
// another instance, beside NSTANCE_INSTANCE_ID, which may be mistyped: a nonce or a
// certificate for that id.

// ownerFile records the instance that a directory belongs to. Neither a key nor a
// received file can have that name.
const ownerFile = ".instance"

// asidePrefix begins the names of folders with what was set aside.
const asidePrefix = "of-"

// owner is the instance that a directory's record names; empty: there is no record, or
// none that can be understood.
func owner(dir identity.Files) (fleet.InstanceID, error) {
	text, err := dir.Read(ownerFile)
	if err != nil {
		return "", fmt.Errorf("read whose %s is: %w", dir.Dir, err)
	}
	return parseOwner(text), nil
}

func parseOwner(text []byte) fleet.InstanceID {
	id, err := fleet.ParseID(strings.TrimSpace(string(text)))
	if err != nil {
		return ""
	}
	return id
}

// certificateOwner is the instance that a certificate is for; empty: it is for none.
func certificateOwner(text []byte) fleet.InstanceID {
	cert, err := pki.ParseCertificate(text)
	if err != nil || len(cert.URIs) != 1 {
		return ""
	}
	caller, err := pki.ParseCaller(cert, cert.URIs[0].Host)
	if err != nil || caller.Role != pki.RoleAgent {
		return ""
	}
	return parseOwner([]byte(caller.ID))
}

// possession is a directory that belongs to an instance.
type possession struct {
	dir      identity.Files
	setAside func(folder string) error
}

// claim makes the directory this instance's. formerly is whose it is if it has no record;
// empty: this instance's. A directory that does not exist is not made here.
func (p possession) claim(ctx context.Context, c Config, formerly fleet.InstanceID) error {
	if _, err := os.Stat(p.dir.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	recorded, err := owner(p.dir)
	if err != nil || recorded == c.InstanceID {
		return err
	}
	if of := cmp.Or(recorded, formerly); of != "" && of != c.InstanceID {
		folder := asideFolder(of, c.Now())
		if err := p.setAside(folder); err != nil {
			return fmt.Errorf("set aside what %s has of instance %s: %w", p.dir.Dir, of, err)
		}
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "a directory held what belongs to another instance: it is set aside, and not used",
			slog.String("dir", p.dir.Dir), slog.String("instance", string(of)), slog.String("kept_in", p.dir.Path(folder)))
	}
	if err := p.dir.Write(ownerFile, []byte(c.InstanceID+"\n"), p.dir.Mode); err != nil {
		return fmt.Errorf("record whose %s is: %w", p.dir.Dir, err)
	}
	return nil
}

func asideFolder(of fleet.InstanceID, now time.Time) string {
	return asidePrefix + string(of) + "-" + now.UTC().Format(asideTime)
}

// setInUseAside renames a private key that a server refused as another instance's.
func setInUseAside(ctx context.Context, dir identity.Files, name string, now time.Time, logger *slog.Logger, more ...slog.Attr) error {
	aside := name + ".in-use-" + now.UTC().Format(asideTime)
	if err := dir.Rename(name, aside); err != nil {
		return err
	}
	logger.LogAttrs(ctx, slog.LevelWarn, "a private key is another instance's: it is set aside, and another one is made",
		append([]slog.Attr{slog.String("key", dir.Path(name)), slog.String("kept_as", dir.Path(aside))}, more...)...)
	return nil
}

const asideTime = "20060102T150405.000000000"

// identityDir is the identity directory. The certificate, which says whose it is, goes
// last. What userdata puts there stays: the CAs and the nonce.
func (c Config) identityDir() possession {
	dir := identity.Files{Dir: c.IdentityDir, Mode: c.IdentityMode}
	return possession{dir, func(folder string) error {
		return dir.SetAside(folder, []string{identity.KeyName, identity.NextName, homeFile, identity.CertificateName})
	}}
}

// keysDir is the directory of keys; all that is in it is its instance's.
func (c Config) keysDir() possession {
	dir := identity.Files{Dir: c.KeysDir, Mode: c.KeysMode}
	return possession{dir, func(folder string) error {
		entries, err := os.ReadDir(dir.Dir)
		if err != nil {
			return err
		}
		var names []string
		for _, e := range entries {
			if e.Name() != ownerFile && (!e.IsDir() || !strings.HasPrefix(e.Name(), asidePrefix)) {
				names = append(names, e.Name())
			}
		}
		return dir.SetAside(folder, names)
	}}
}

// recvDir is the directory of received files.
func (c Config) recvDir(received *files.Dir) possession {
	return possession{identity.Files{Dir: c.RecvDir, Mode: c.RecvMode}, received.SetAside}
}

// disown sets aside what the machine has of another instance: its identity last, which is
// what says that the rest is that instance's.
func (c Config) disown(ctx context.Context, of fleet.InstanceID) error {
	if c.KeysDir != "" {
		if err := c.keysDir().claim(ctx, c, of); err != nil {
			return err
		}
	}
	if c.RecvDir != "" {
		if err := c.recvDir(c.newReceived()).claim(ctx, c, of); err != nil {
			return err
		}
	}
	return c.identityDir().claimFrom(ctx, c, of)
}

// claimFrom is claim of a directory that certainly is another instance's, whatever its
// record says.
func (p possession) claimFrom(ctx context.Context, c Config, of fleet.InstanceID) error {
	if recorded, err := owner(p.dir); err != nil {
		return err
	} else if recorded == c.InstanceID {
		if err := p.dir.Remove(ownerFile); err != nil {
			return err
		}
	}
	return p.claim(ctx, c, of)
}
