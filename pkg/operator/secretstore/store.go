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

// Keys in the Secrets and the ConfigMap.
const (
	CAsKey        = "ca.crt"
	publicKeyKey  = "public.key"
	privateKeyKey = "private.key"
	nonceKey      = "nonce.jwt"
)

// callTimeout bounds each call to the API server.
const callTimeout = 15 * time.Second

var (
	// ErrChanged means that a Secret has changed since it was read, and has to be read again
	// first.
	ErrChanged = errors.New("changed since it was read")
	// ErrNoNonce means that there is no registration nonce.
	ErrNoNonce = errors.New("there is no registration nonce")
)

// Config names the objects of an identity.
type Config struct {
	// Client reads uncached.
	Client    client.Client
	Namespace string

	CAConfigMap, CertSecret, KeySecret, NonceSecret string
	// Holder identifies this process in the Lease.
	Holder string
	Now    func() time.Time
}

// Store is one process's view of an identity. It is safe for concurrent use.
type Store struct {
	Config

	mu sync.Mutex
	// seen holds each Secret as last read or written; nil if it did not exist. A Secret that
	// was not read has no entry.
	seen map[string]*corev1.Secret
}

var _ identity.Store = (*Store)(nil)

// The default names; create can't be limited to names.
// +kubebuilder:rbac:groups="",namespace=nstance,resources=configmaps,resourceNames=nstance-cluster-ca,verbs=get
// +kubebuilder:rbac:groups="",namespace=nstance,resources=secrets,resourceNames=nstance-operator-nonce,verbs=get
// +kubebuilder:rbac:groups="",namespace=nstance,resources=secrets,resourceNames=nstance-operator-cert;nstance-operator-key,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=nstance,resources=secrets,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=nstance,resources=leases,resourceNames=nstance-operator-cert,verbs=get;update
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=nstance,resources=leases,verbs=create

// CAsAt returns where the user has to put the cluster's CAs.
func (s *Store) CAsAt() string {
	return fmt.Sprintf("ConfigMap %s/%s under the key %s", s.Namespace, s.CAConfigMap, CAsKey)
}

// New returns a store. It does no I/O.
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

// contents combines two Secrets. An incomplete pair counts as none.
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

// Nonce returns the registration nonce, or ErrNoNonce.
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

// read returns a Secret; nil if it does not exist.
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

// write sets data in a Secret and keeps its other keys, provided that the Secret is as last
// seen.
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
	delete(s.seen, name) // after an error the write may still have succeeded
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

// changed reports whether a write found a different object than seen.
func changed(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}
