package secretstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nstance/nstance/pkg/identity"
	"github.com/nstance/nstance/pkg/pki"
)

// The keys of what Secrets and the ConfigMap hold.
const (
	CAsKey        = "ca.crt"
	publicKeyKey  = "public.key"
	privateKeyKey = "private.key"
	nonceKey      = "nonce.jwt"
)

// callTimeout bounds each call to the API server.
const callTimeout = 15 * time.Second

var (
	// ErrChanged means that somebody else has written a Secret since it was read. What
	// there is now has to be read first.
	ErrChanged = errors.New("was written by somebody else meanwhile")
	// ErrNoNonce means that there is no registration nonce.
	ErrNoNonce = errors.New("there is no registration nonce")
)

// Config says where an identity is.
type Config struct {
	// Client reads past any cache.
	Client    client.Client
	Namespace string

	CAConfigMap, CertSecret, KeySecret, NonceSecret string
	// Holder names this process to people who look at a Lease that it holds.
	Holder string
	Now    func() time.Time
}

// Store is one process's view of an identity. It is safe for concurrent use.
type Store struct {
	Config

	mu sync.Mutex
	// seen holds each Secret as it was last read or written; nil: it was not there. What
	// was not read is not in it.
	seen map[string]*corev1.Secret
}

var _ identity.Store = (*Store)(nil)

// +kubebuilder:rbac:groups="",namespace=nstance,resources=configmaps,verbs=get
// +kubebuilder:rbac:groups="",namespace=nstance,resources=secrets,verbs=get;create;update
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=nstance,resources=leases,verbs=get;create;update

// CAsAt says where the user has to put the cluster's CAs.
func (s *Store) CAsAt() string {
	return fmt.Sprintf("ConfigMap %s/%s under the key %s", s.Namespace, s.CAConfigMap, CAsKey)
}

// New makes a store. It does no I/O.
func New(c Config) *Store { return &Store{Config: c, seen: map[string]*corev1.Secret{}} }

// Load implements identity.Store.
func (s *Store) Load(ctx context.Context) (identity.Contents, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	configured, err := s.configuredCAs(ctx)
	if err != nil {
		return identity.Contents{}, err
	}
	cert, err := s.read(ctx, s.CertSecret)
	if err != nil {
		return identity.Contents{}, err
	}
	key, err := s.read(ctx, s.KeySecret)
	if err != nil {
		return identity.Contents{}, err
	}
	c := contents(cert, key)
	c.CAs, err = s.trusted(configured, part(cert, CAsKey))
	return c, err
}

// contents is what two Secrets come to. Half of a pair is as good as none.
func contents(cert, key *corev1.Secret) identity.Contents {
	c := identity.Contents{Key: part(key, privateKeyKey)}
	certificate, of := part(cert, corev1.TLSCertKey), part(cert, corev1.TLSPrivateKeyKey)
	if certificate == nil || of == nil {
		return c
	}
	c.Certificate, c.Key, c.Next = certificate, of, c.Key
	if bytes.Equal(c.Key, c.Next) {
		c.Next = nil
	}
	return c
}

func part(secret *corev1.Secret, key string) []byte {
	if secret == nil || len(secret.Data[key]) == 0 {
		return nil
	}
	return secret.Data[key]
}

// Stage implements identity.Store.
func (s *Store) Stage(ctx context.Context, key []byte) error {
	private, err := pki.ParsePrivateKey(key)
	if err != nil {
		return err
	}
	public, err := pki.EncodePublicKey(pki.PublicKey(private))
	if err != nil {
		return err
	}
	return s.write(ctx, s.KeySecret, corev1.SecretTypeOpaque, map[string][]byte{privateKeyKey: key, publicKeyKey: public})
}

// Promote implements identity.Store.
func (s *Store) Promote(ctx context.Context, c identity.Contents) error {
	return s.write(ctx, s.CertSecret, corev1.SecretTypeTLS, map[string][]byte{
		corev1.TLSCertKey: c.Certificate, corev1.TLSPrivateKeyKey: c.Key, CAsKey: c.CAs,
	})
}

// Nonce returns the registration nonce; ErrNoNonce when there is none.
func (s *Store) Nonce(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret, err := s.read(ctx, s.NonceSecret)
	if err != nil {
		return "", err
	}
	nonce := bytes.TrimSpace(part(secret, nonceKey))
	if len(nonce) == 0 {
		return "", fmt.Errorf("%w in Secret %s/%s under the key %s", ErrNoNonce, s.Namespace, s.NonceSecret, nonceKey)
	}
	return string(nonce), nil
}

// read returns a Secret; nil: it is not there.
func (s *Store) read(ctx context.Context, name string) (*corev1.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var secret corev1.Secret
	err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		s.seen[name] = nil
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		delete(s.seen, name)
		return nil, fmt.Errorf("read Secret %s/%s: %w", s.Namespace, name, err)
	}
	s.seen[name] = &secret
	return &secret, nil
}

// write puts data into a Secret, beside whatever else it has, provided that it is as it
// was last seen.
func (s *Store) write(ctx context.Context, name string, of corev1.SecretType, data map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.seen[name]
	if !known {
		var err error
		if seen, err = s.read(ctx, name); err != nil {
			return err
		}
	}
	delete(s.seen, name) // an error may mean that it was written after all
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var next *corev1.Secret
	var err error
	if seen == nil {
		next = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Type: of, Data: data}
		err = s.Client.Create(ctx, next)
	} else {
		next = seen.DeepCopy()
		if next.Data == nil {
			next.Data = map[string][]byte{}
		}
		maps.Copy(next.Data, data)
		err = s.Client.Update(ctx, next)
	}
	if err != nil {
		if changed(err) {
			err = errors.Join(ErrChanged, err)
		}
		return fmt.Errorf("write Secret %s/%s: %w", s.Namespace, name, err)
	}
	s.seen[name] = next
	return nil
}

// changed reports whether a write found another object than was seen.
func changed(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
