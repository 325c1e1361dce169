package identity

import "context"

// The parts of an identity, by the names that they have in a folder and in errors.
const (
	CAsName         = "ca.crt"            // the CAs that servers are checked against
	CertificateName = "identity.crt"      // what is shown to servers
	KeyName         = "identity.key"      // the certificate's private key
	NextName        = "identity.key.next" // the private key of a renewal under way
)

// Contents is what a store holds, as PEM. What it does not hold is nil.
type Contents struct {
	CAs, Certificate, Key, Next []byte
}

// Store keeps one identity. What a method has stored outlives a crash of the
// machine from the moment that it returns without an error. A crash before that
// leaves either what there was or what was to be, as far as Load can tell.
type Store interface {
	// Load returns what there is, and changes nothing. Certificate and Key are a
	// pair whenever only Promote has written certificates, also while another
	// process promotes one.
	Load(ctx context.Context) (Contents, error)
	// Stage keeps a key that a certificate is going to be asked for: as Key while
	// there is none, as Next after that. It replaces the Next that there was.
	Stage(ctx context.Context, key []byte) error
	// Promote replaces CAs, Certificate and Key. The key is the present one or the
	// one staged last, which then is Next no more. The new CAs may be seen beside the
	// old pair: they are good for both.
	Promote(ctx context.Context, c Contents) error
	// Lock keeps other processes that use the same store from renewing until unlock
	// is called. Without waiting, held says whether the lock was free.
	Lock(ctx context.Context) (unlock func(), held bool, err error)
}
