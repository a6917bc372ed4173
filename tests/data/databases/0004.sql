BEGIN TRANSACTION;
CREATE TABLE access_token (
        token_id TEXT NOT NULL,
        secret_digest BLOB NOT NULL,
        label TEXT NOT NULL,
        tenant TEXT,
        scopes TEXT NOT NULL,
        namespaces TEXT,
        created_at_ms INTEGER NOT NULL,
        expires_at_ms INTEGER,
        revoked_at_ms INTEGER,
        used_at_ms INTEGER,
        PRIMARY KEY (token_id)
    ) STRICT
    ;
INSERT INTO "access_token" VALUES('01a23a69-6d13-777e-a97a-761dcd6ea005',X'14A79B5555B32ADE12D5200BCB8326B3F0176582B0359A618EE30EAA526BF4C7','operator',NULL,'["lookup", "record", "admin:read", "admin:write", "forensics"]',NULL,1796276317459,NULL,NULL,1796276321442);
INSERT INTO "access_token" VALUES('01a23a69-755c-74ce-9d88-449273b4d345',X'C3DB92AE83F8FCEDE0E78A3DDFF5E124D9BA23B6FBFA106BDE06DE2A6DE25F32','gateway','search','["lookup", "record"]','["smollm2-*"]',1796276319580,1796362719580,NULL,1796276321287);
INSERT INTO "access_token" VALUES('01a23a69-757b-71eb-8dee-fd124b8acbd6',X'27C94A6E99AA5DB61167C6C7BF74105EA482695C43D926093D28FED7FB97FEA1','old',NULL,'["lookup"]',NULL,1796276319611,NULL,1796276319633,NULL);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE audit (
        id INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        target TEXT NOT NULL,
        outcome TEXT NOT NULL,
        details TEXT NOT NULL,
        PRIMARY KEY (id)
    ) STRICT
    ;
INSERT INTO "audit" VALUES(1,1796276317472,'open','POST /admin/v1/tokens','','done','{"body": {"label": "operator", "scopes": ["lookup", "record", "admin:read", "admin:write", "forensics"]}}');
INSERT INTO "audit" VALUES(2,1796276319596,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/tokens','','done','{"body": {"label": "gateway", "scopes": ["lookup", "record"], "tenant": "search", "namespaces": ["smollm2-*"], "expires_in_s": 86400}}');
INSERT INTO "audit" VALUES(3,1796276319625,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/tokens','','done','{"body": {"label": "old", "scopes": ["lookup"]}}');
INSERT INTO "audit" VALUES(4,1796276319648,'01a23a69-6d13-777e-a97a-761dcd6ea005','DELETE /admin/v1/tokens/{token_id}','01a23a69-757b-71eb-8dee-fd124b8acbd6','done','{"path": {"token_id": "01a23a69-757b-71eb-8dee-fd124b8acbd6"}}');
INSERT INTO "audit" VALUES(5,1796276320360,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/states/{state_id}/quarantine','01a23a69-76d0-73c8-b336-4fa5d43a0bea','done','{"path": {"state_id": "01a23a69-76d0-73c8-b336-4fa5d43a0bea"}, "body": {"reason": "suspected driver bug"}}');
INSERT INTO "audit" VALUES(6,1796276320458,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/evictions','','done','{"body": {"state_ids": ["01a23a69-76ac-709f-9244-149d8b2d2e9b"]}}');
INSERT INTO "audit" VALUES(7,1796276320484,'01a23a69-6d13-777e-a97a-761dcd6ea005','PUT /admin/v1/tenants/{name}','search','done','{"path": {"name": "search"}, "body": {"max_entries": 100, "max_stored_bytes": 1073741824}}');
INSERT INTO "audit" VALUES(8,1796276320511,'01a23a69-6d13-777e-a97a-761dcd6ea005','PUT /admin/v1/mode','','done','{"body": {"mode": "lookup_record"}}');
INSERT INTO "audit" VALUES(9,1796276320540,'01a23a69-6d13-777e-a97a-761dcd6ea005','PATCH /admin/v1/namespaces','other','done','{"body": {"namespace": "other", "min_tokens": 1}}');
INSERT INTO "audit" VALUES(10,1796276320556,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/evictions','','state_not_found','{"body": {"state_ids": ["01a23a69-76ac-709f-9244-149d8b2d2e9b"]}}');
INSERT INTO "audit" VALUES(11,1796276320620,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/jobs','verify','done','{"body": {"kind": "verify"}}');
INSERT INTO "audit" VALUES(12,1796276321108,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/jobs','reclaim','done','{"body": {"kind": "reclaim"}}');
INSERT INTO "audit" VALUES(13,1796276321333,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/states/{state_id}/verify','01a23a69-7835-74b8-9da4-12a5a4979292','done','{"path": {"state_id": "01a23a69-7835-74b8-9da4-12a5a4979292"}}');
INSERT INTO "audit" VALUES(14,1796276321360,'01a23a69-6d13-777e-a97a-761dcd6ea005','POST /admin/v1/states/{state_id}/verify','01a23a69-7810-704f-a8a8-2a07c5828a4e','done','{"path": {"state_id": "01a23a69-7810-704f-a8a8-2a07c5828a4e"}}');
INSERT INTO "audit" VALUES(15,1796276321367,'01a23a69-6d13-777e-a97a-761dcd6ea005','GET /admin/v1/states/{state_id}/components/{name}/raw','01a23a69-7835-74b8-9da4-12a5a4979292 full','done','{"path": {"state_id": "01a23a69-7835-74b8-9da4-12a5a4979292", "name": "full"}}');
INSERT INTO "audit" VALUES(16,1796276321416,'01a23a69-6d13-777e-a97a-761dcd6ea005','PATCH /admin/v1/limits','','done','{"body": {"max_entries": 5000, "budget_bytes": "2GiB"}}');
CREATE TABLE block (
        id INTEGER NOT NULL,
        digest BLOB NOT NULL,
        raw_bytes INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        refs INTEGER NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (digest)
    )
     STRICT
    ;
INSERT INTO "block" VALUES(1,X'4995DCF902B6F770ED59EDE3C52E3AA07C503D344D5ADC949E9847687071DE5D',65536,57408,2);
INSERT INTO "block" VALUES(2,X'9CE646DAC68F7DBE17BDD7178F88787BAD6D6121B6298643EC7AD440A69B583F',65536,57408,2);
INSERT INTO "block" VALUES(3,X'E4C9589FB4848E1E2F061C9BFDD2E5876239FE425A2E69940F0B3C67C3055E5A',155768,135232,1);
INSERT INTO "block" VALUES(4,X'E7CE3D9F41716A1DE92FA56595BCA96288607E91141B857FA6879863AECB61AA',65536,57408,1);
INSERT INTO "block" VALUES(5,X'2734CAEBBFA0B3CB0525DAC509A00EFAE0F65F7FB44696E7F000A5BC587C10E8',155768,135232,1);
INSERT INTO "block" VALUES(6,X'FEBCE8ECF363B7CBED28B9B40A0D6C59F53A0CCD65C38EC127D7045B902663AE',500,4160,1);
INSERT INTO "block" VALUES(8,X'D203AC0BFF4A864B125B066EA17241C9932B7AC311DF14A39CB4C285450EB50F',99,4160,1);
INSERT INTO "block" VALUES(9,X'0797CE9DF8BCF05FCF263DD1794DEBDE6253A1571224B60372A0DDD5DC0A8520',120,4160,1);
INSERT INTO "block" VALUES(10,X'8904358CE78CFB4859EB7EB621180CFF59676F8715F65612135E69E044B9C825',2048,4160,1);
INSERT INTO "block" VALUES(11,X'0670327A4FEECFF11EC6D5625C1588F91DC6773BE3730C9494529F8AB365F877',200,4160,1);
CREATE TABLE component (
        state INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        name TEXT NOT NULL,
        raw_bytes INTEGER NOT NULL,
        digest BLOB,
        upload TEXT, geometry BLOB, row_bytes INTEGER DEFAULT 0 NOT NULL, new_raw_bytes INTEGER DEFAULT 0 NOT NULL, by_blocks INTEGER DEFAULT 0 NOT NULL,
        PRIMARY KEY (state, ordinal),
        UNIQUE (state, name),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    ;
INSERT INTO "component" VALUES(1,0,'kv',131072,X'E3CED12C52CD276D284BC1524D43E058F6FF545F2618D2E1EA72CD0DC267E1F9',NULL,X'0101000002000000000000000000000000010000000000008000000000000000000000000000000002000000000000000080000000000000000001000000000000010000000000008000000000000000000000000000000002000000000000000080000000000000',1024,131072,0);
INSERT INTO "component" VALUES(1,1,'recurrent',155768,X'E4C9589FB4848E1E2F061C9BFDD2E5876239FE425A2E69940F0B3C67C3055E5A',NULL,NULL,0,155768,0);
INSERT INTO "component" VALUES(2,0,'kv',196608,X'E43A8F558F67E96BAC1FB43946E273699994EE8025D21166B09321EDED016FAD',NULL,X'010100000200000000000000000000000001000000000000C0000000000000000000000000000000020000000000000000C000000000000000800100000000000001000000000000C0000000000000000000000000000000020000000000000000C0000000000000',1024,65536,0);
INSERT INTO "component" VALUES(2,1,'recurrent',155768,X'2734CAEBBFA0B3CB0525DAC509A00EFAE0F65F7FB44696E7F000A5BC587C10E8',NULL,NULL,0,155768,0);
INSERT INTO "component" VALUES(3,0,'full',500,X'FEBCE8ECF363B7CBED28B9B40A0D6C59F53A0CCD65C38EC127D7045B902663AE',NULL,NULL,0,500,0);
INSERT INTO "component" VALUES(5,0,'full',99,X'D203AC0BFF4A864B125B066EA17241C9932B7AC311DF14A39CB4C285450EB50F',NULL,NULL,0,99,0);
INSERT INTO "component" VALUES(6,0,'full',120,X'0797CE9DF8BCF05FCF263DD1794DEBDE6253A1571224B60372A0DDD5DC0A8520',NULL,NULL,0,120,0);
INSERT INTO "component" VALUES(7,0,'full',2048,X'8904358CE78CFB4859EB7EB621180CFF59676F8715F65612135E69E044B9C825',NULL,NULL,0,2048,0);
INSERT INTO "component" VALUES(8,0,'full',200,X'0670327A4FEECFF11EC6D5625C1588F91DC6773BE3730C9494529F8AB365F877',NULL,NULL,0,200,0);
CREATE TABLE counter (
        name TEXT NOT NULL,
        label TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (name, label)
    )
     WITHOUT ROWID,
     STRICT
    ;
INSERT INTO "counter" VALUES('admissions','admitted',8);
INSERT INTO "counter" VALUES('blocks_deduplicated','',2);
INSERT INTO "counter" VALUES('blocks_written','',11);
INSERT INTO "counter" VALUES('evictions','admin',1);
INSERT INTO "counter" VALUES('failures_reported','integrity',1);
INSERT INTO "counter" VALUES('gap_tokens_bucket','hit,0',2);
INSERT INTO "counter" VALUES('gap_tokens_bucket','quarantined,0',1);
INSERT INTO "counter" VALUES('gap_tokens_total','hit',0);
INSERT INTO "counter" VALUES('gap_tokens_total','quarantined',0);
INSERT INTO "counter" VALUES('geometry','derived',2);
INSERT INTO "counter" VALUES('hit_tokens','',130);
INSERT INTO "counter" VALUES('leases_ended','broken_off',1);
INSERT INTO "counter" VALUES('leases_opened','',3);
INSERT INTO "counter" VALUES('leases_released','failed:integrity',1);
INSERT INTO "counter" VALUES('leases_released','restored',1);
INSERT INTO "counter" VALUES('lookups','hit',2);
INSERT INTO "counter" VALUES('lookups','miss',1);
INSERT INTO "counter" VALUES('misses','quarantined',1);
INSERT INTO "counter" VALUES('quarantines','block_damaged',1);
INSERT INTO "counter" VALUES('quarantines','integrity',1);
INSERT INTO "counter" VALUES('quarantines','operator',1);
INSERT INTO "counter" VALUES('raw_bytes_deduplicated','',131072);
INSERT INTO "counter" VALUES('raw_bytes_written','',511411);
INSERT INTO "counter" VALUES('received_bytes','plain',642483);
INSERT INTO "counter" VALUES('recorded_bytes','',642483);
INSERT INTO "counter" VALUES('records','committed',8);
INSERT INTO "counter" VALUES('requests','DELETE /admin/v1/tokens/{token_id} 200',1);
INSERT INTO "counter" VALUES('requests','GET /admin/v1/jobs/{job_id} 200',11);
INSERT INTO "counter" VALUES('requests','GET /admin/v1/quarantine 200',1);
INSERT INTO "counter" VALUES('requests','GET /admin/v1/states/{state_id}/components/{name}/raw 200',1);
INSERT INTO "counter" VALUES('requests','GET /readyz 200',1);
INSERT INTO "counter" VALUES('requests','PATCH /admin/v1/limits 200',1);
INSERT INTO "counter" VALUES('requests','PATCH /admin/v1/namespaces 200',1);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/evictions 200',1);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/evictions 404',1);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/jobs 202',2);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/states/{state_id}/quarantine 200',1);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/states/{state_id}/verify 200',2);
INSERT INTO "counter" VALUES('requests','POST /admin/v1/tokens 201',3);
INSERT INTO "counter" VALUES('requests','POST /v1/leases/{lease_id}/release 200',2);
INSERT INTO "counter" VALUES('requests','POST /v1/lookup 200',2);
INSERT INTO "counter" VALUES('requests','POST /v1/records 201',8);
INSERT INTO "counter" VALUES('requests','POST /v1/records/{state_id}/commit 200',8);
INSERT INTO "counter" VALUES('requests','POST /v1/restore 204',1);
INSERT INTO "counter" VALUES('requests','PUT /admin/v1/mode 200',1);
INSERT INTO "counter" VALUES('requests','PUT /admin/v1/tenants/{name} 200',1);
INSERT INTO "counter" VALUES('requests','PUT /v1/records/{state_id}/components/{name} 200',10);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,1000',2);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,10000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,2500',2);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,25000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,250000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','admit,5000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','commit,10000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','commit,2500',1);
INSERT INTO "counter" VALUES('stage_us_bucket','commit,25000',4);
INSERT INTO "counter" VALUES('stage_us_bucket','commit,50000',2);
INSERT INTO "counter" VALUES('stage_us_bucket','compress,1000',2);
INSERT INTO "counter" VALUES('stage_us_bucket','compress,10000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','compress,250',2);
INSERT INTO "counter" VALUES('stage_us_bucket','compress,500',4);
INSERT INTO "counter" VALUES('stage_us_bucket','compress,5000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','hash,100',2);
INSERT INTO "counter" VALUES('stage_us_bucket','hash,250',3);
INSERT INTO "counter" VALUES('stage_us_bucket','hash,50',5);
INSERT INTO "counter" VALUES('stage_us_bucket','lease,500',3);
INSERT INTO "counter" VALUES('stage_us_bucket','lookup,250',2);
INSERT INTO "counter" VALUES('stage_us_bucket','lookup,25000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','lookup,500',1);
INSERT INTO "counter" VALUES('stage_us_bucket','write,1000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','write,10000',4);
INSERT INTO "counter" VALUES('stage_us_bucket','write,2500',1);
INSERT INTO "counter" VALUES('stage_us_bucket','write,25000',2);
INSERT INTO "counter" VALUES('stage_us_bucket','write,5000',1);
INSERT INTO "counter" VALUES('stage_us_bucket','write,50000',1);
INSERT INTO "counter" VALUES('stage_us_total','admit',280249);
INSERT INTO "counter" VALUES('stage_us_total','commit',134920);
INSERT INTO "counter" VALUES('stage_us_total','compress',12229);
INSERT INTO "counter" VALUES('stage_us_total','hash',672);
INSERT INTO "counter" VALUES('stage_us_total','lease',886);
INSERT INTO "counter" VALUES('stage_us_total','lookup',23000);
INSERT INTO "counter" VALUES('stage_us_total','write',89280);
INSERT INTO "counter" VALUES('stored_bytes_written','',437395);
CREATE TABLE history (
        minute INTEGER NOT NULL,
        name TEXT NOT NULL,
        label TEXT NOT NULL,
        value INTEGER NOT NULL,
        PRIMARY KEY (minute, name, label)
    ) WITHOUT ROWID, STRICT
    ;
INSERT INTO "history" VALUES(29937938,'admissions','admitted',8);
INSERT INTO "history" VALUES(29937938,'blocks_deduplicated','',2);
INSERT INTO "history" VALUES(29937938,'blocks_written','',11);
INSERT INTO "history" VALUES(29937938,'evictions','admin',1);
INSERT INTO "history" VALUES(29937938,'failures_reported','integrity',1);
INSERT INTO "history" VALUES(29937938,'hit_tokens','',130);
INSERT INTO "history" VALUES(29937938,'leases_opened','',3);
INSERT INTO "history" VALUES(29937938,'leases_released','failed:integrity',1);
INSERT INTO "history" VALUES(29937938,'leases_released','restored',1);
INSERT INTO "history" VALUES(29937938,'lookups','hit',2);
INSERT INTO "history" VALUES(29937938,'lookups','miss',1);
INSERT INTO "history" VALUES(29937938,'misses','quarantined',1);
INSERT INTO "history" VALUES(29937938,'quarantines','block_damaged',1);
INSERT INTO "history" VALUES(29937938,'quarantines','integrity',1);
INSERT INTO "history" VALUES(29937938,'quarantines','operator',1);
INSERT INTO "history" VALUES(29937938,'recorded_bytes','',642483);
INSERT INTO "history" VALUES(29937938,'records','committed',8);
INSERT INTO "history" VALUES(29937938,'stored_bytes_written','',437395);
CREATE TABLE job (
        job_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        owner TEXT NOT NULL,
        actor TEXT NOT NULL,
        arguments TEXT NOT NULL,
        done INTEGER NOT NULL,
        total INTEGER NOT NULL,
        unit TEXT NOT NULL,
        cancel INTEGER NOT NULL,
        result TEXT,
        error TEXT,
        created_at_ms INTEGER NOT NULL,
        ended_at_ms INTEGER,
        PRIMARY KEY (job_id),
        CONSTRAINT job_status CHECK (status IN ('running', 'done', 'failed', 'cancelled'))
    ) STRICT
    ;
INSERT INTO "job" VALUES('01a23a69-7935-7258-822d-da1433433a65','verify','done','10694-18eda7cb17f27114','01a23a69-6d13-777e-a97a-761dcd6ea005','{"rate_bytes": null, "resume": false}',459328,459328,'bytes',0,'{"states": 3, "blocks": 6, "bytes": 446848, "bad_blocks": 0, "quarantined": 0}',NULL,1796276320565,1796276321052);
INSERT INTO "job" VALUES('01a23a69-7b3c-75ef-8cf8-f7a6208b51c0','reclaim','done','10694-18eda7cb17f27114','01a23a69-6d13-777e-a97a-761dcd6ea005','{}',9,9,'blocks',0,'{"expired_recordings": 0, "replaced_states": 0, "reclaimed_blocks": 0, "used_bytes_before": 454656, "used_bytes_after": 454656}',NULL,1796276321084,1796276321110);
CREATE TABLE lease (
        lease_id TEXT NOT NULL,
        state_id TEXT NOT NULL,
        ttl_ms INTEGER NOT NULL,
        expires_boot_ms INTEGER NOT NULL,
        outcome TEXT,
        created_at_ms INTEGER NOT NULL, namespace_id INTEGER,
        PRIMARY KEY (lease_id)
    )
     STRICT
    ;
INSERT INTO "lease" VALUES('01a23a69-7871-727a-8e64-2e6ba112715a','01a23a69-7810-704f-a8a8-2a07c5828a4e',60000,22207981,'failed:integrity',1796276320369,2);
INSERT INTO "lease" VALUES('01a23a69-788e-736d-af8b-ed6cc66c439e','01a23a69-7835-74b8-9da4-12a5a4979292',60000,22208010,'broken_off',1796276320398,2);
INSERT INTO "lease" VALUES('01a23a69-7c2c-7793-ba21-d014b179e76c','01a23a69-75bc-7639-a78d-7e807eabbb05',60000,22208937,'restored',1796276321324,1);
CREATE TABLE namespace (
        id INTEGER NOT NULL,
        name TEXT NOT NULL,
        identity TEXT,
        identity_digest BLOB,
        model TEXT,
        mode TEXT,
        min_tokens INTEGER,
        max_entries INTEGER,
        max_stored_bytes INTEGER,
        entries INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        logical_bytes INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL, new_raw_bytes INTEGER DEFAULT 0 NOT NULL, new_row_bytes INTEGER DEFAULT 0 NOT NULL, tenant TEXT DEFAULT '' NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (name)
    )
     STRICT
    ;
INSERT INTO "namespace" VALUES(1,'ns',NULL,NULL,NULL,NULL,NULL,NULL,NULL,2,449228,639216,1796276319677,196608,196608,'');
INSERT INTO "namespace" VALUES(2,'other',NULL,NULL,NULL,NULL,1,NULL,NULL,1,25120,500,1796276319872,0,0,'');
INSERT INTO "namespace" VALUES(3,'searchsmollm2-a',NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,6280,200,1796276321277,0,0,'search');
CREATE TABLE pin (
        state INTEGER NOT NULL,
        expires_at_ms INTEGER,
        reason TEXT NOT NULL,
        actor TEXT NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    ) STRICT
    ;
INSERT INTO "pin" VALUES(3,NULL,'system prompt','01a23a69-6d13-777e-a97a-761dcd6ea005',1796276319872);
CREATE TABLE quarantine (
        state INTEGER NOT NULL,
        class TEXT NOT NULL,
        reason TEXT NOT NULL,
        reported_by TEXT NOT NULL,
        component TEXT,
        seq INTEGER,
        expected_digest BLOB,
        actual_digest BLOB,
        lease_id TEXT,
        at_ms INTEGER NOT NULL, client TEXT, verified_at_ms INTEGER, intact INTEGER,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    ;
INSERT INTO "quarantine" VALUES(5,'operator','suspected driver bug','operator',NULL,NULL,NULL,NULL,NULL,1796276320337,'01a23a69-6d13-777e-a97a-761dcd6ea005',NULL,NULL);
INSERT INTO "quarantine" VALUES(6,'integrity','import refused','client',NULL,NULL,NULL,NULL,'01a23a69-7871-727a-8e64-2e6ba112715a',1796276320374,'01a23a69-6d13-777e-a97a-761dcd6ea005',1796276321344,1);
INSERT INTO "quarantine" VALUES(7,'block_damaged','the bytes do not have their digest','service','full',0,X'8904358CE78CFB4859EB7EB621180CFF59676F8715F65612135E69E044B9C825',X'1415F09FF75D50C7BD9DFE253C0CF4B7FEB56176E2B3C6EB554A6D2ABEE2AB21',NULL,1796276320404,NULL,1796276321330,0);
CREATE TABLE radix_node (
        id INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        parent_id INTEGER,
        first_token BLOB NOT NULL,
        edge BLOB NOT NULL,
        depth INTEGER NOT NULL,
        PRIMARY KEY (id),
        UNIQUE (parent_id, first_token),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id),
        FOREIGN KEY(parent_id) REFERENCES radix_node (id)
    )
     STRICT
    ;
INSERT INTO "radix_node" VALUES(1,1,NULL,X'',X'',0);
INSERT INTO "radix_node" VALUES(2,1,1,X'67060000',X'670600008501000001010000E11F00005C22000049010000010100007A050000149500000D000000BE5D00001F010000380500007F34000022010000D7040000831F0000B81100000D0000007F010000F0170000502600007B0100000E0E00001F01000006010000010D000022010000845000007B010000A00500001F01000006010000101A00000B0000001D0B00003F010000CA7F00006A02000054010000B0390000471100000D000000D6AF00003D210000C10A0000DE020000F80500000C0300000601000089370000CD5D0000693400001A0000001A0900000837000085010000C359000016030000AF0600001E0600009D4C00000D0000004C560000190000005D08000059010000A7010000CD070000CF0400002C3800004901000001010000CB2A00003F010000910C00001E000000B63B000019000000230D00000B00000006010000B7210000FF2300009B2F00002201000006010000B9490000C69C00009A0F0000850200002C3800000B000000000E000006010000782500007B020000D142000099BE00000D0000004C560000190000005E05000063030000950200005903000006010000B9490000C69C0000531200000B00000022010000CC01000059010000DF0D0000010100009E0500003F010000540100001E000000B63B00001900000078020000DB230000280E00000B0000002201000064010000',128);
INSERT INTO "radix_node" VALUES(3,1,2,X'CC010000',X'CC010000DF0D0000FE0100001C01000018370000331D00001F0100005FA200006302000006010000DE050000C52F000002020000DE020000F80500006E0300000D0000004C56000019000000F71100000B000000140300003B0D000012020000B9490000C69C00005F010000060100002506000021C000000D000000B63B0000190000002805000025060000D401000080430000331D00000B0000000B02000001010000CE2F0000BD7C000031020000330100003E0A00001A00000031020000360F0000E0060000330100009D2A00001E0000004C560000190000005D08000059010000A7010000CD070000CF0400002C3800004901000001010000CB2A0000',192);
INSERT INTO "radix_node" VALUES(4,2,NULL,X'',X'',0);
INSERT INTO "radix_node" VALUES(5,2,4,X'01000000',X'010000000200000003000000',3);
INSERT INTO "radix_node" VALUES(8,2,4,X'05000000',X'05000000',1);
INSERT INTO "radix_node" VALUES(9,2,4,X'06000000',X'0600000007000000',2);
INSERT INTO "radix_node" VALUES(10,2,4,X'08000000',X'0800000009000000',2);
INSERT INTO "radix_node" VALUES(11,3,NULL,X'',X'',0);
INSERT INTO "radix_node" VALUES(12,3,11,X'01000000',X'0100000002000000',2);
CREATE TABLE recording (
        state INTEGER NOT NULL,
        tokens BLOB NOT NULL,
        owner TEXT NOT NULL,
        reserved_bytes INTEGER NOT NULL,
        "replace" INTEGER NOT NULL,
        ttl_ms INTEGER NOT NULL,
        deadline_boot_ms INTEGER NOT NULL,
        PRIMARY KEY (state),
        FOREIGN KEY(state) REFERENCES state (id) ON DELETE CASCADE
    )
     STRICT
    ;
CREATE TABLE setting (
        "key" TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY ("key")
    )
     STRICT
    ;
INSERT INTO "setting" VALUES('mode','lookup_record');
INSERT INTO "setting" VALUES('limits','{"max_entries": 5000, "budget_bytes": 2147483648}');
CREATE TABLE state (
        id INTEGER NOT NULL,
        state_id TEXT NOT NULL,
        namespace_id INTEGER NOT NULL,
        page_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        status TEXT NOT NULL,
        node_id INTEGER,
        token_count INTEGER NOT NULL,
        token_digest BLOB NOT NULL,
        manifest_digest BLOB,
        kv_descriptor TEXT,
        logical_bytes INTEGER NOT NULL,
        overhead_bytes INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        touched_at_ms INTEGER NOT NULL,
        hits INTEGER NOT NULL,
        PRIMARY KEY (id),
        CONSTRAINT state_status CHECK (status IN ('recording', 'live', 'quarantined')),
        CONSTRAINT state_kind CHECK (kind IN ('full_state', 'kv_recurrent', 'recurrent_only', 'kv')),
        UNIQUE (state_id),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id),
        FOREIGN KEY(node_id) REFERENCES radix_node (id)
    )
     STRICT
    ;
INSERT INTO "state" VALUES(1,'01a23a69-75bc-7639-a78d-7e807eabbb05',1,'8c2338f1aca2197c0295b843ab52e24acb77dc9ff1cd07dfa5fe0b868a8064e9','kv_recurrent','live',2,128,X'8C2338F1ACA2197C0295B843AB52E24ACB77DC9FF1CD07DFA5FE0B868A8064E9',X'0DDA914763CE1BA8CA50EA9C1296B9651625C0DE2D2678AFB6BB40DE6F54819A','{"version":1,"layer_start":0,"layer_end":6,"token_start":0,"token_count":128,"layer_count":2,"k_type":1,"v_type":1,"k_row_bytes":256,"v_row_bytes":256,"v_element_bytes":2,"k_idx_row_bytes":0,"payload_bytes":131072,"flags":0,"codec":0,"component_count":0}',286840,3110,1796276319677,1796276321325,1);
INSERT INTO "state" VALUES(2,'01a23a69-762c-71fa-8df6-21ddfb5af4fc',1,'ad9779329746933a045f3635a30724ceb2cc06a03e8a56ec30ab08e77fc221d4','kv_recurrent','live',3,192,X'AD9779329746933A045F3635A30724CEB2CC06A03E8A56EC30AB08E77FC221D4',X'91C1FB67D16DD8B7A179D50AAC91C5DEE20CFAB0FBFC70F58D94CFC090941476','{"version":1,"layer_start":0,"layer_end":6,"token_start":0,"token_count":192,"layer_count":2,"k_type":1,"v_type":1,"k_row_bytes":256,"v_row_bytes":256,"v_element_bytes":2,"k_idx_row_bytes":0,"payload_bytes":196608,"flags":0,"codec":0,"component_count":0}',352376,3430,1796276319788,1796276319860,0);
INSERT INTO "state" VALUES(3,'01a23a69-767f-7486-b1bb-02dbaeea814d',2,'baee98364d80b05e967788bd3008a571c7a901efffb22bdf9ee6480ec6911456','full_state','live',5,3,X'BAEE98364D80B05E967788BD3008A571C7A901EFFFB22BDF9EE6480EC6911456',X'B375CF45777AF665244CD88DDF76DCEAE864142B7ED7EFE2E8281091C5C21249',NULL,500,2124,1796276319872,1796276319904,0);
INSERT INTO "state" VALUES(5,'01a23a69-76d0-73c8-b336-4fa5d43a0bea',2,'0da262f95e70c8e23edda591689142ebf3f0b0b699ec6d58fd03f8d8399fbb45','full_state','quarantined',8,1,X'0DA262F95E70C8E23EDDA591689142EBF3F0B0B699EC6D58FD03F8D8399FBB45',X'639088A6B47268DE6589CA6D59D2025A2BB3F86B4B7EB6B23E274EA5A053BF22',NULL,99,2116,1796276320200,1796276320252,0);
INSERT INTO "state" VALUES(6,'01a23a69-7810-704f-a8a8-2a07c5828a4e',2,'3aa550b76b215675b86881a806b72c8e93ff27f642e09b7e4ebd2e45f0799c71','full_state','quarantined',9,2,X'3AA550B76B215675B86881A806B72C8E93FF27F642E09B7E4EBD2E45F0799C71',X'3AB54FE9422AFBCB23E64103A999AF471631E880CB3E3DD52A0C240365D1127B',NULL,120,2120,1796276320272,1796276320369,1);
INSERT INTO "state" VALUES(7,'01a23a69-7835-74b8-9da4-12a5a4979292',2,'6d3290dab331c7abb097b66498f199cdce2ede3e82f764336602556842167077','full_state','quarantined',10,2,X'6D3290DAB331C7ABB097B66498F199CDCE2EDE3E82F764336602556842167077',X'AA8353B3004BD3897D581DE4DEC061E9BDC795B7798E5E5A9E02CA6356196EA8',NULL,2048,2120,1796276320310,1796276320320,0);
INSERT INTO "state" VALUES(8,'01a23a69-7bfd-73d2-b5ab-779e9a7804ec',3,'8546af9a069a7fdce91660add98acad9af3f51d0a002046be8e3df14165954ea','full_state','live',12,2,X'8546AF9A069A7FDCE91660ADD98ACAD9AF3F51D0A002046BE8E3DF14165954EA',X'AC7E4DC256159B77A78FDF6953396A451A1F876820AEB91C1E2B3C58E16AB137',NULL,200,2120,1796276321277,1796276321308,0);
CREATE TABLE state_block (
        state INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        block INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        PRIMARY KEY (state, ordinal, seq),
        FOREIGN KEY(state) REFERENCES state (id),
        FOREIGN KEY(block) REFERENCES block (id)
    )
     WITHOUT ROWID,
     STRICT
    ;
INSERT INTO "state_block" VALUES(1,0,0,1,1);
INSERT INTO "state_block" VALUES(2,0,0,1,1);
INSERT INTO "state_block" VALUES(1,0,1,2,1);
INSERT INTO "state_block" VALUES(2,0,1,2,1);
INSERT INTO "state_block" VALUES(1,1,0,3,1);
INSERT INTO "state_block" VALUES(2,0,2,4,1);
INSERT INTO "state_block" VALUES(2,1,0,5,1);
INSERT INTO "state_block" VALUES(3,0,0,6,2);
INSERT INTO "state_block" VALUES(5,0,0,8,2);
INSERT INTO "state_block" VALUES(6,0,0,9,2);
INSERT INTO "state_block" VALUES(7,0,0,10,2);
INSERT INTO "state_block" VALUES(8,0,0,11,3);
CREATE TABLE store (
        id INTEGER NOT NULL CHECK (id = 1),
        commit_counter INTEGER NOT NULL,
        stored_bytes INTEGER NOT NULL,
        entries INTEGER NOT NULL,
        boot_id TEXT NOT NULL,
        clean INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (id)
    )
     STRICT
    ;
INSERT INTO "store" VALUES(1,12,480628,4,'8dc0e69f-8317-4da6-8b06-39bfdf1f33ce',1,1796276317021);
CREATE TABLE tenant (
        name TEXT NOT NULL,
        max_stored_bytes INTEGER,
        max_logical_bytes INTEGER,
        max_entries INTEGER,
        max_in_flight_records INTEGER,
        max_requests_per_second INTEGER,
        max_bytes_per_second INTEGER,
        created_at_ms INTEGER NOT NULL,
        PRIMARY KEY (name)
    ) STRICT
    ;
INSERT INTO "tenant" VALUES('search',1073741824,NULL,100,NULL,NULL,NULL,1796276320466);
CREATE TABLE tombstone (
        id INTEGER NOT NULL,
        namespace_id INTEGER NOT NULL,
        token_digest BLOB NOT NULL,
        token_count INTEGER NOT NULL,
        kind TEXT NOT NULL,
        state_id TEXT NOT NULL,
        cause TEXT NOT NULL,
        evicted_at_ms INTEGER NOT NULL,
        PRIMARY KEY (id),
        FOREIGN KEY(namespace_id) REFERENCES namespace (id)
    )
     STRICT
    ;
INSERT INTO "tombstone" VALUES(1,2,X'F3FA857E7AC144698B712CC738D2B93DD6A84C113FDDE3B8B2CC498F6BBE3440',3,'full_state','01a23a69-76ac-709f-9244-149d8b2d2e9b','admin',1796276320424);
CREATE INDEX block_unowned ON block (id) WHERE refs = 0;
CREATE INDEX lease_expiry ON lease (expires_boot_ms);
CREATE INDEX lease_held ON lease (state_id, expires_boot_ms) WHERE outcome IS NULL
    ;
CREATE INDEX namespace_model ON namespace (model);
CREATE UNIQUE INDEX radix_node_root ON radix_node (namespace_id) WHERE parent_id IS NULL
    ;
CREATE INDEX tombstone_prefix ON tombstone (namespace_id, token_count, token_digest)
    ;
CREATE UNIQUE INDEX state_in_flight ON state (namespace_id, token_digest, kind) WHERE status = 'recording'
    ;
CREATE UNIQUE INDEX state_live_prefix ON state (node_id, kind) WHERE status = 'live' AND node_id IS NOT NULL
    ;
CREATE INDEX state_lru ON state (status, touched_at_ms);
CREATE INDEX state_namespace_lru ON state (namespace_id, status, touched_at_ms);
CREATE INDEX state_node ON state (node_id);
CREATE INDEX state_prefix ON state (namespace_id, token_digest);
CREATE INDEX state_block_owner ON state_block (block, namespace_id);
CREATE INDEX namespace_tenant ON namespace (tenant);
CREATE UNIQUE INDEX job_running ON job (kind) WHERE status = 'running';
CREATE INDEX job_created ON job (created_at_ms);
CREATE INDEX quarantine_at ON quarantine (at_ms);
COMMIT;
