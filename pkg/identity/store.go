package identity

import "context"

// The parts of an identity, by file name, as also used in errors.
const (
	CAsName         = "ca.crt"            // trusted CAs
	CertificateName = "identity.crt"      // the certificate
	KeyName         = "identity.key"      // the certificate's private key
	NextName        = "identity.key.next" // the private key of a renewal in progress
)

// Contents is the contents of a store, as PEM. Missing parts are nil.
type Contents struct {
	CAs, Certificate, Key, Next []byte
}

// Store stores one identity. Methods that return without an error are durable. After a crash
// during a method, Load returns either the old or the new contents.
type Store interface {
	// Load returns the contents, and changes nothing. Certificate and Key match as long as
	// only Promote has written certificates, even while another process promotes one.
	Load(ctx context.Context) (Contents, error)
	// Stage stores a key before a certificate is requested for it: as Key if there is none,
	// and otherwise as Next, replacing the previous Next.
	Stage(ctx context.Context, key []byte) error
	// Promote replaces CAs, Certificate and Key. The key is the current one or the last staged
	// one, which then is no longer Next. The new CAs may be seen with the old pair: they are
	// valid for both.
	Promote(ctx context.Context, c Contents) error
	// Lock prevents other processes with the same store from renewing until unlock is called.
	// It does not wait; held reports whether the lock was free.
	Lock(ctx context.Context) (unlock func(), held bool, err error)
}
