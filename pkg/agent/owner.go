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

// A machine made from an image of another instance has that instance's identity, keys and
// received files. If it used them, two machines would share them. So each directory records
// its owner, and another instance's files are set aside: moved into a subfolder, where they
// can be found, and never used. Beside NSTANCE_INSTANCE_ID, which may be mistyped, that needs
// proof that this machine is another instance: a nonce or certificate for that ID.

// ownerFile records the instance that owns a directory. Neither a key nor a received file can
// have that name.
const ownerFile = ".instance"

// asidePrefix is the prefix of folders with files set aside.
const asidePrefix = "of-"

// owner returns the instance in a directory's owner record, or an empty ID if the record is
// missing or invalid.
func owner(dir identity.Files) (fleet.InstanceID, error) {
	text, err := dir.Read(ownerFile)
	if err != nil {
		return "", fmt.Errorf("read the owner record of %s: %w", dir.Dir, err)
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

// certificateOwner returns the instance that a certificate is for, or an empty ID.
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

// possession is a directory owned by an instance.
type possession struct {
	dir      identity.Files
	setAside func(folder string) error
}

// claim makes this instance the owner of the directory. formerly is the owner if there is no
// record; empty: this instance. A missing directory is not created.
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
			return fmt.Errorf("set aside the files of instance %[2]s in %[1]s: %[3]w", p.dir.Dir, of, err)
		}
		c.Logger.LogAttrs(ctx, slog.LevelWarn, "set aside files of another instance",
			slog.String("dir", p.dir.Dir), slog.String("instance", string(of)), slog.String("kept_in", p.dir.Path(folder)))
	}
	if err := p.dir.Write(ownerFile, []byte(c.InstanceID+"\n"), p.dir.Mode); err != nil {
		return fmt.Errorf("write the owner record of %s: %w", p.dir.Dir, err)
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
	logger.LogAttrs(ctx, slog.LevelWarn, "set aside a private key that belongs to another instance, generating another",
		append([]slog.Attr{slog.String("key", dir.Path(name)), slog.String("kept_as", dir.Path(aside))}, more...)...)
	return nil
}

const asideTime = "20060102T150405.000000000"

// identityDir is the identity directory. The certificate, which names the owner, is moved
// last. The CAs and the nonce stay, since userdata provides them.
func (c Config) identityDir() possession {
	dir := identity.Files{Dir: c.IdentityDir, Mode: c.IdentityMode}
	return possession{dir, func(folder string) error {
		return dir.SetAside(folder, []string{identity.KeyName, identity.NextName, homeFile, identity.CertificateName})
	}}
}

// keysDir is the directory of keys; everything in it belongs to its owner.
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

// disown sets aside another instance's files on this machine. The identity is last, because it
// identifies the owner of the rest.
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

// claimFrom is claim for a directory that certainly belongs to another instance, whatever its
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
